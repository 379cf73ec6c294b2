//! What the plugin tells the daemon about a call, when it has ended.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The version of [`Event`] that we write.
pub const VERSION: u32 = 1;

/// How a call of the plugin went.
///
/// Unknown keys are ignored and absent ones have defaults, so that plugin and daemon can be replaced
/// one after the other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Event {
    /// [`VERSION`] of whoever wrote it.
    pub version: u32,
    /// `ADD` or `DEL`.
    pub verb: String,
    /// The network's name.
    pub network: String,
    /// The container's id.
    pub container: String,
    /// The interface in the container.
    pub ifname: String,
    /// The namespace's path, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// The pod, if the runtime says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<EventPod>,
    /// The addresses that an ADD gave.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<IpAddr>,
    /// `native`, `delegate` or `chain`.
    pub mode: String,
    /// How the address was chosen: a strategy of headcni-ipam, or another plugin's type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<String>,
    /// When the call began, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// How long the call took.
    pub duration_us: u64,
    /// What it consisted of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<EventStep>,
    /// The CNI error code, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<u32>,
}

/// A pod by its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EventPod {
    /// Its namespace in Kubernetes.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid, if the runtime says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// A part of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EventStep {
    /// What was done: `ipam`, `ruleset`, `link`, `ports`, or a plugin's type. A step may be within
    /// another one: an IPAM plugin that is executed is within `ipam`.
    pub name: String,
    /// What was asked, where it is not the verb of the call: a failed ADD is undone by DEL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verb: Option<String>,
    /// How long it took.
    pub duration_us: u64,
    /// Whether it failed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_newer_plugin_adds_is_ignored() {
        let text =
            r#"{"version":2,"verb":"ADD","colour":"red","steps":[{"name":"link","deep":1}]}"#;
        let event: Event = serde_json::from_str(text).unwrap();
        assert_eq!((event.version, event.verb.as_str()), (2, "ADD"));
        assert_eq!(event.steps[0].name, "link");
    }

    #[test]
    fn what_an_older_plugin_does_not_say_has_defaults() {
        assert_eq!(
            serde_json::from_str::<Event>("{}").unwrap(),
            Event::default()
        );
    }

    #[test]
    fn an_event_has_no_words_for_what_is_not_there() {
        let text = serde_json::to_string(&Event::default()).unwrap();
        assert_eq!(
            text,
            r#"{"version":0,"verb":"","network":"","container":"","ifname":"","mode":"","startedUnixMs":0,"durationUs":0}"#
        );
    }
}
