//! The event that the plugin posts to the daemon at the end of an ADD or DEL.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The version of [`Event`] that this crate writes.
pub const VERSION: u32 = 1;

/// Names of the steps of native mode. Other steps have the type of the plugin that was executed.
pub mod step {
    /// An address is leased or released.
    pub const IPAM: &str = "ipam";
    /// The nftables ruleset is ensured.
    pub const RULESET: &str = "ruleset";
    /// The veth, its addresses and routes are created or deleted.
    pub const LINK: &str = "link";
    /// The DNS configuration of the result is resolved.
    pub const DNS: &str = "dns";
    /// Host ports are opened or closed.
    pub const PORTS: &str = "ports";
}

/// One finished ADD or DEL.
///
/// Unknown keys are ignored and absent ones have defaults, so plugin and daemon can be upgraded one
/// after the other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Event {
    /// The [`VERSION`] of the plugin that wrote it.
    pub version: u32,
    /// `ADD` or `DEL`.
    pub verb: String,
    /// The CNI network's name.
    pub network: String,
    /// The container's id.
    pub container: String,
    /// The interface in the container.
    pub ifname: String,
    /// The path of the netns, if the runtime gave one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// The pod, if the runtime named it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<EventPod>,
    /// The addresses of the ADD's result.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<IpAddr>,
    /// `native`, `delegate` or `chain`.
    pub mode: String,
    /// The allocation strategy of headcni-ipam, or the type of another IPAM plugin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<String>,
    /// When the call started, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// The duration of the call in microseconds.
    pub duration_us: u64,
    /// The steps of the call, in the order in which they ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<EventStep>,
    /// The CNI error code, if the call failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<u32>,
}

/// A pod as Kubernetes names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EventPod {
    /// Its Kubernetes namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid, if the runtime passed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// One step of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EventStep {
    /// A name of [`step`], or the type of the plugin that was executed. Steps nest: an IPAM plugin
    /// that is executed is a step within [`step::IPAM`].
    pub name: String,
    /// Its verb, if it differs from the call's: a failed ADD is rolled back by DEL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verb: Option<String>,
    /// Its duration in microseconds.
    pub duration_us: u64,
    /// Whether it succeeded.
    pub outcome: StepOutcome,
}

/// Whether a step succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StepOutcome {
    /// It succeeded.
    #[default]
    Ok,
    /// It failed.
    Error,
}

impl StepOutcome {
    /// Its name in JSON and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_newer_plugin_are_ignored() {
        let text =
            r#"{"version":2,"verb":"ADD","colour":"red","steps":[{"name":"link","deep":1}]}"#;
        let event: Event = serde_json::from_str(text).unwrap();
        assert_eq!((event.version, event.verb.as_str()), (2, "ADD"));
        assert_eq!(event.steps[0].name, "link");
        assert_eq!(event.steps[0].outcome, StepOutcome::Ok);
    }

    #[test]
    fn keys_that_an_older_plugin_does_not_write_have_defaults() {
        assert_eq!(
            serde_json::from_str::<Event>("{}").unwrap(),
            Event::default()
        );
    }

    #[test]
    fn optional_keys_are_left_out() {
        let text = serde_json::to_string(&Event::default()).unwrap();
        assert_eq!(
            text,
            r#"{"version":0,"verb":"","network":"","container":"","ifname":"","mode":"","startedUnixMs":0,"durationUs":0}"#
        );
    }

    #[test]
    fn the_outcome_of_a_step_is_a_word() {
        for outcome in [StepOutcome::Ok, StepOutcome::Error] {
            assert_eq!(serde_json::to_value(outcome).unwrap(), outcome.as_str());
        }
    }
}
