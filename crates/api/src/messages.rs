//! The daemon's API on its Unix socket: `GET /v1/<resource>` and `POST /v1/events`.
//!
//! Bodies are JSON. Unknown keys are ignored and absent ones have defaults, so daemon, plugin and
//! tools can be upgraded one after the other.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::event::EventPod;

/// Where the plugin posts an [`Event`](crate::event::Event).
pub const EVENTS_PATH: &str = "/v1/events";

/// The largest event that the daemon accepts.
pub const MAX_EVENT_BYTES: usize = 64 * 1024;

/// The largest response that a client accepts: thousands of pods.
pub const MAX_RESPONSE_BYTES: usize = 16 * 1024 * 1024;

/// A resource that the daemon serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resource {
    /// [`Status`].
    Status,
    /// A list of [`Pod`].
    Pods,
    /// A list of [`Lease`].
    Leases,
    /// A list of [`Interface`].
    Interfaces,
    /// A list of [`Route`].
    Routes,
    /// [`PodCidr`].
    PodCidr,
    /// A list of [`Condition`].
    Conditions,
}

impl Resource {
    /// All resources.
    pub const ALL: [Self; 7] = [
        Self::Status,
        Self::Pods,
        Self::Leases,
        Self::Interfaces,
        Self::Routes,
        Self::PodCidr,
        Self::Conditions,
    ];

    /// The last segment of its path.
    pub fn name(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Pods => "pods",
            Self::Leases => "leases",
            Self::Interfaces => "interfaces",
            Self::Routes => "routes",
            Self::PodCidr => "podcidr",
            Self::Conditions => "conditions",
        }
    }

    /// Its path, such as `/v1/status`.
    pub fn path(self) -> String {
        format!("/v1/{self}")
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The body of every response whose status is not 2xx.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// What went wrong.
    pub error: String,
}

/// A summary of the daemon and its node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Status {
    /// The version of headcni-daemon.
    pub version: String,
    /// Seconds since the daemon started.
    pub uptime_seconds: u64,
    /// The node's name in Kubernetes.
    pub node_name: String,
    /// The node's pod CIDRs; empty until they are known.
    pub pod_cidrs: Vec<IpNet>,
    /// `native` or `bridge`.
    pub mode: String,
    /// Whether all required conditions are `True`.
    pub ready: bool,
    /// The number of attached pods.
    pub pods: u64,
    /// All conditions.
    pub conditions: Vec<Condition>,
}

/// The body of `/ready` on the admin address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Readiness {
    /// Whether all required conditions are `True`.
    pub ready: bool,
    /// All conditions.
    pub conditions: Vec<Condition>,
}

/// A health statement, as Kubernetes has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Condition {
    /// Its name, such as `MeshJoined`.
    pub name: String,
    /// Whether it is met.
    pub status: ConditionStatus,
    /// Whether the node is unready unless it is `True`.
    pub required: bool,
    /// The cause in one word, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What was observed.
    pub message: String,
    /// What you can do about it, if there is something to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// When `status` last changed: RFC 3339, UTC.
    pub since: String,
}

/// The status of a [`Condition`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConditionStatus {
    /// Met.
    True,
    /// Not met.
    False,
    /// Not checked yet, or not possible to check.
    #[default]
    #[serde(other)]
    Unknown,
}

/// One interface of one container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Pod {
    /// The container's id.
    pub container: String,
    /// The interface in the container.
    pub ifname: String,
    /// The CNI network's name.
    pub network: String,
    /// The pod, if the runtime named it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<EventPod>,
    /// Its addresses.
    pub ips: Vec<IpAddr>,
    /// The host side of its veth, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_link: Option<String>,
    /// The MAC of the interface in the container, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// When it was attached, in milliseconds since 1970; 0 if unknown.
    pub since_unix_ms: u64,
    /// The state of its attachment.
    pub state: PodState,
}

/// The state of an attachment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PodState {
    /// Its ADD succeeded.
    Attached,
    /// Its ADD started and has not ended, or crashed.
    HalfMade,
    /// Its netns is gone, but no DEL was seen.
    Gone,
    /// A state that a newer daemon reports.
    #[default]
    #[serde(other)]
    Unknown,
}

/// An address in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    /// The address.
    pub ip: IpAddr,
    /// The id of the container that has it.
    #[serde(default)]
    pub container: String,
    /// The interface in the container, if the store has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ifname: Option<String>,
    /// The pod, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<EventPod>,
}

/// The host side of a pod's veth.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its ifindex.
    pub index: u32,
    /// Whether it is administratively up.
    pub up: bool,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// Its MAC.
    pub mac: String,
    /// The pod at its other end, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<EventPod>,
}

/// A route that headcni installed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Route {
    /// Its destination.
    pub dst: IpNet,
    /// The outgoing interface, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dev: Option<String>,
    /// The routing table; 254 is `main`.
    #[serde(default)]
    pub table: u32,
    /// Its type.
    #[serde(default)]
    pub kind: RouteKind,
}

/// The type of a route, as in `ip route`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RouteKind {
    /// Forwards packets.
    Unicast,
    /// Rejects packets with an ICMP error.
    Unreachable,
    /// Drops packets.
    Blackhole,
    /// Any other type.
    #[default]
    #[serde(other)]
    Other,
}

/// The node's pod CIDRs and where they come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodCidr {
    /// The node's pod CIDRs; empty until they are known.
    pub local: Vec<IpNet>,
    /// The cluster CIDRs.
    pub base: Vec<IpNet>,
    /// The source that decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Why they are unknown, and what to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Each source that was tried and what it had, one line each.
    pub tried: Vec<String>,
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_are_the_documented_ones() {
        let paths = Resource::ALL.map(Resource::path);
        assert_eq!(
            paths.join(" "),
            "/v1/status /v1/pods /v1/leases /v1/interfaces /v1/routes /v1/podcidr /v1/conditions"
        );
    }

    #[rstest]
    #[case(json!("True"), ConditionStatus::True)]
    #[case(json!("False"), ConditionStatus::False)]
    #[case(json!("Maybe"), ConditionStatus::Unknown)]
    fn a_status_of_a_newer_daemon_is_unknown(
        #[case] text: serde_json::Value,
        #[case] status: ConditionStatus,
    ) {
        assert_eq!(
            serde_json::from_value::<ConditionStatus>(text).unwrap(),
            status
        );
    }

    #[test]
    fn keys_of_a_newer_daemon_are_ignored_and_absent_ones_have_defaults() {
        let pod: Pod =
            serde_json::from_value(json!({ "container": "c", "state": "new", "x": 1 })).unwrap();
        assert_eq!(
            pod,
            Pod {
                container: "c".to_owned(),
                ..Pod::default()
            }
        );
        assert_eq!(
            serde_json::from_str::<Status>("{}").unwrap(),
            Status::default()
        );
    }

    #[test]
    fn a_condition_has_no_keys_for_what_it_does_not_have() {
        let condition = Condition {
            name: "MeshJoined".to_owned(),
            status: ConditionStatus::True,
            ..Condition::default()
        };
        assert_eq!(
            serde_json::to_value(condition).unwrap(),
            json!({
                "name": "MeshJoined", "status": "True", "required": false, "message": "",
                "since": "",
            })
        );
    }
}
