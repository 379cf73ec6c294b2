//! [`Notify`]: one message of the IPN bus.

use serde_json::Value;

use super::error::clean;
use super::lenient::LenientObject;
use super::status::{BackendState, login_error};

/// What has changed. Any message is a reason to read the status again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent flags of ipn.Notify"
)]
pub struct Notify {
    /// Set in the first message and after a change.
    pub state: Option<BackendState>,
    pub is_login_finished: bool,
    pub has_new_prefs: bool,
    pub has_self_changed: bool,
    pub have_peers_changed: bool,
    /// The health warnings, if they changed.
    pub health: Option<Vec<String>>,
    /// The URL for an interactive login.
    pub browse_to: Option<String>,
    /// `ErrMessage`.
    pub error: Option<String>,
}

impl Notify {
    pub(super) fn parse(value: &Value) -> Self {
        let notify = LenientObject::of(value);
        // Older versions send a whole network map for any change.
        let has_map = notify.has("NetMap");
        let peers = ["PeersChanged", "PeersRemoved", "PeerChangedPatch"];
        Self {
            state: notify.typed("State").map(BackendState::from_number),
            is_login_finished: notify.has("LoginFinished"),
            has_new_prefs: notify.has("Prefs"),
            has_self_changed: has_map || notify.has("SelfChange"),
            have_peers_changed: has_map || peers.iter().any(|name| notify.has(name)),
            health: notify.value("Health").map(warnings),
            browse_to: notify.non_empty_text("BrowseToURL"),
            error: notify.non_empty_text("ErrMessage").map(|text| clean(&text)),
        }
    }

    /// For a message that was too long to be parsed.
    pub(super) fn unknown_change() -> Self {
        Self {
            has_new_prefs: true,
            has_self_changed: true,
            have_peers_changed: true,
            ..Self::default()
        }
    }

    /// The last login error, from the health warnings.
    pub fn login_error(&self) -> Option<&str> {
        self.health
            .iter()
            .flatten()
            .find_map(|text| login_error(text))
    }
}

fn warnings(health: &Value) -> Vec<String> {
    let warnings = LenientObject::of(health).value("Warnings");
    let warnings = warnings.and_then(Value::as_object).into_iter().flatten();
    let texts =
        warnings.filter_map(|(_, warning)| LenientObject::of(warning).non_empty_text("Text"));
    texts.map(|text| clean(&text)).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case(json!({ "State": 6 }), Notify { state: Some(BackendState::Running), ..Notify::default() })]
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
    #[case(json!({ "FutureField": [1, 2] }), Notify::default())]
    #[case(json!(["no object"]), Notify::default())]
    fn messages_are_parsed(#[case] message: Value, #[case] expected: Notify) {
        assert_eq!(Notify::parse(&message), expected);
    }

    #[test]
    fn the_login_error_is_a_health_warning() {
        let notify = Notify::parse(&json!({ "Health": { "Warnings": {
            "a": { "Text": "something" }, "b": 7,
            "login-state": {
                "Text": "You are logged out. The last login error was: authkey expired",
            },
        } } }));
        assert_eq!(notify.login_error(), Some("authkey expired"));
        let healthy = Notify::parse(&json!({ "Health": { "Warnings": null } }));
        assert_eq!(healthy.health, Some(vec![]));
    }
}
