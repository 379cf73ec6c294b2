//! What the daemon answers.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::event::EventPod;

/// An answer to [`Ask`](super::Ask). Which one it is follows from the question.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Answer {
    /// To `status`.
    Status(Box<Status>),
    /// To `pods`.
    Pods(Vec<Pod>),
    /// To `leases`.
    Leases(Vec<Lease>),
    /// To `interfaces`.
    Interfaces(Vec<Interface>),
    /// To `routes`.
    Routes(Vec<Route>),
    /// To `podcidr`.
    PodCidr(PodCidr),
    /// To `conditions`.
    Conditions(Vec<Condition>),
}

/// How the daemon is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Status {
    /// The daemon's own.
    pub version: String,
    /// How long it has been running.
    pub uptime_seconds: u64,
    /// The node's name.
    pub node_name: String,
    /// Where this node's pods have their addresses from, as far as it is known.
    pub pod_networks: Vec<IpNet>,
    /// `native` or `bridge`.
    pub mode: String,
    /// Whether all required conditions hold.
    pub ready: bool,
    /// How many pods are attached.
    pub pods: u64,
    /// How all of them are.
    pub conditions: Vec<Condition>,
}

/// Something that must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Condition {
    /// As `/ready` has it.
    pub name: String,
    /// Whether it holds.
    pub holds: bool,
    /// Whether the node is unready while it does not.
    pub required: bool,
    /// What was found, or what is wrong and how to mend it.
    pub message: String,
    /// When it began to be so, in milliseconds since 1970.
    pub since_unix_ms: u64,
}

/// One interface of one container, and whose it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Pod {
    /// The container's id.
    pub container: String,
    /// The interface in the container.
    pub ifname: String,
    /// The network's name.
    pub network: String,
    /// The pod, if the runtime said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<EventPod>,
    /// Its addresses.
    pub ips: Vec<IpAddr>,
    /// The link's name on the node, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_link: Option<String>,
    /// The MAC of the interface in the container, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Since when it is there, in milliseconds since 1970; 0 if nobody knows.
    pub since_unix_ms: u64,
    /// How far it came.
    pub state: PodState,
}

/// How far an attachment came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PodState {
    /// Its ADD succeeded.
    Attached,
    /// Its ADD has begun, and nobody knows of its end.
    HalfMade,
    /// Its network is gone, though no DEL was seen.
    Gone,
    /// Something that a newer daemon says.
    #[default]
    #[serde(other)]
    Unknown,
}

/// An address that is given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    /// The address.
    pub ip: IpAddr,
    /// Whose it is.
    #[serde(default)]
    pub container: String,
    /// The interface in the container; none if the store doesn't say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ifname: Option<String>,
    /// The pod, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<EventPod>,
}

/// A link of ours on the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its number.
    pub index: u32,
    /// Whether it is switched on.
    pub up: bool,
    /// The largest packet.
    pub mtu_bytes: u32,
    /// Its MAC.
    pub mac: String,
    /// The pod at its other end, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<EventPod>,
}

/// A route of ours on the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Route {
    /// Where it leads.
    pub dst: IpNet,
    /// The link that it leads by, if it leads anywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dev: Option<String>,
    /// The table that it is in; 254 is `main`.
    #[serde(default)]
    pub table: u32,
    /// What becomes of a packet.
    #[serde(default)]
    pub kind: RouteKind,
}

/// What a route does with a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RouteKind {
    /// Sends it on.
    Unicast,
    /// Refuses it, and says so.
    Unreachable,
    /// Drops it.
    Blackhole,
    /// Something else.
    #[default]
    #[serde(other)]
    Other,
}

/// Where this node's pods have their addresses from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodCidr {
    /// The node's own networks; empty if they aren't known.
    pub local: Vec<IpNet>,
    /// The cluster's.
    pub base: Vec<IpNet>,
    /// Who said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Why they aren't known, and what to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What was looked at, a line each.
    pub looked: Vec<String>,
}
