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
    /// What was done: `ipam`, `link`, `ports`, or a plugin's type.
    pub name: String,
    /// How long it took.
    pub duration_us: u64,
    /// Whether it failed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
}
