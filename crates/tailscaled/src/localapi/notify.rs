//! One message of the event bus.

use serde_json::Value;

use super::error::clean;
use super::lenient::Fields;
use super::status::{State, login_error};

/// What has changed. That a message has come is a reason to look, whatever is in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one of tailscaled's own signs, and any of them may come with any other"
)]
pub struct Notify {
    /// The state, if it has changed or this is the first message.
    pub state: Option<State>,
    /// Whether a login has succeeded.
    pub is_login_finished: bool,
    /// Whether it was told something new, by us or others.
    pub has_new_prefs: bool,
    /// Whether something has changed about this member itself.
    pub has_self_changed: bool,
    /// Whether something has changed about other members.
    pub have_peers_changed: bool,
    /// What is wrong, if that has changed.
    pub health: Option<Vec<String>>,
    /// Where a person has to go to let this node in.
    pub browse_to: Option<String>,
    /// Something that tailscaled calls an error.
    pub error: Option<String>,
}

impl Notify {
    pub(super) fn read(value: &Value) -> Self {
        let notify = Fields::of(value);
        // A whole network map is what older versions send for everything.
        let has_map = notify.has("NetMap");
        let peers = ["PeersChanged", "PeersRemoved", "PeerChangedPatch"];
        Self {
            state: notify.typed("State").map(State::numbered),
            is_login_finished: notify.has("LoginFinished"),
            has_new_prefs: notify.has("Prefs"),
            has_self_changed: has_map || notify.has("SelfChange"),
            have_peers_changed: has_map || peers.iter().any(|name| notify.has(name)),
            health: notify.value("Health").map(complaints),
            browse_to: notify.some_text("BrowseToURL"),
            error: notify.some_text("ErrMessage").map(|text| clean(&text)),
        }
    }

    /// Anything may have changed: for a message that was too long to be read.
    pub(super) fn of_anything() -> Self {
        Self {
            has_new_prefs: true,
            has_self_changed: true,
            have_peers_changed: true,
            ..Self::default()
        }
    }

    /// Why a login failed, if this says so.
    pub fn login_error(&self) -> Option<&str> {
        let complaints = self.health.iter().flatten();
        complaints.into_iter().find_map(|text| login_error(text))
    }
}

fn complaints(health: &Value) -> Vec<String> {
    let warnings = Fields::of(health).value("Warnings");
    let warnings = warnings.and_then(Value::as_object).into_iter().flatten();
    let texts = warnings.filter_map(|(_, warning)| Fields::of(warning).some_text("Text"));
    texts.map(|text| clean(&text)).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case(json!({ "State": 6 }), Notify { state: Some(State::Running), ..Notify::default() })]
    #[case(json!({ "LoginFinished": {} }),
        Notify { is_login_finished: true, ..Notify::default() })]
    #[case(json!({ "SelfChange": { "Addresses": [] }, "State": null }),
        Notify { has_self_changed: true, ..Notify::default() })]
    #[case(json!({ "PeersRemoved": [5] }),
        Notify { have_peers_changed: true, ..Notify::default() })]
    #[case(json!({ "NetMap": {} }),
        Notify { have_peers_changed: true, has_self_changed: true, ..Notify::default() })]
    #[case(json!({ "ErrMessage": "x\ny" }),
        Notify { error: Some("x y".to_owned()), ..Notify::default() })]
    #[case(json!({ "FromTheFuture": [1, 2] }), Notify::default())]
    #[case(json!(["no object"]), Notify::default())]
    fn messages_are_understood(#[case] message: Value, #[case] expected: Notify) {
        assert_eq!(Notify::read(&message), expected);
    }

    #[test]
    fn why_a_login_failed_is_among_the_complaints() {
        let notify = Notify::read(&json!({ "Health": { "Warnings": {
            "a": { "Text": "something" }, "b": 7,
            "login-state": {
                "Text": "You are logged out. The last login error was: authkey expired",
            },
        } } }));
        assert_eq!(notify.login_error(), Some("authkey expired"));
        let healthy = Notify::read(&json!({ "Health": { "Warnings": null } }));
        assert_eq!(healthy.health, Some(vec![]));
    }
}
