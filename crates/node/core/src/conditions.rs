//! What must hold for the node to be of use, by name: the body of `/ready`.
//!
//! A condition is reported by whoever keeps it, as often as it is looked at. A change is logged
//! once, when it happens.

mod report;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use serde::Serialize;
use tracing::Level;

pub use report::{ConditionReport, Report};

/// Something that must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Condition {
    /// The file that SIGHUP read last is the one in force.
    ConfigurationLoaded,
    /// The Kubernetes API answers, if it is asked.
    KubernetesReachable,
    /// It is known which addresses this node's pods get.
    PodCidrKnown,
    /// Nothing has addresses that the mesh needs for itself.
    NoAddressOverlap,
    /// This node is a member of the mesh.
    MeshJoined,
    /// The mesh's server answers, and we know its language.
    HeadscaleReachable,
    /// No other node has what this one has.
    PodCidrUnique,
    /// Other nodes send packets for this node's pods here.
    RoutesServed,
    /// The mesh's policy lets pods reach pods.
    PolicyAllowsPods,
    /// No key that the mesh needs expires soon.
    CredentialsValid,
    /// This node's clock is the server's.
    ClockInSync,
    /// The CNI configuration is in its place.
    CniConfigWritten,
    /// Forwarding, rules, routes, gateways and nftables are as they should be.
    NetworkReady,
    /// No firewall of somebody else drops what pods send.
    ForwardingAllowed,
    /// There are addresses left for new pods.
    IpsAvailable,
    /// The plugin can reach us.
    SocketOpen,
    /// What pods left behind could be looked at and collected.
    OrphansCollected,
}

impl Condition {
    /// All of them, in the order in which they come to hold.
    pub const ALL: [Self; 17] = [
        Self::ConfigurationLoaded,
        Self::KubernetesReachable,
        Self::PodCidrKnown,
        Self::NoAddressOverlap,
        Self::MeshJoined,
        Self::HeadscaleReachable,
        Self::PodCidrUnique,
        Self::RoutesServed,
        Self::PolicyAllowsPods,
        Self::CredentialsValid,
        Self::ClockInSync,
        Self::CniConfigWritten,
        Self::NetworkReady,
        Self::ForwardingAllowed,
        Self::IpsAvailable,
        Self::SocketOpen,
        Self::OrphansCollected,
    ];

    /// Its name, as `/ready` and metrics have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ConfigurationLoaded => "ConfigurationLoaded",
            Self::KubernetesReachable => "KubernetesReachable",
            Self::PodCidrKnown => "PodCIDRKnown",
            Self::NoAddressOverlap => "NoAddressOverlap",
            Self::MeshJoined => "MeshJoined",
            Self::HeadscaleReachable => "HeadscaleReachable",
            Self::PodCidrUnique => "PodCIDRUnique",
            Self::RoutesServed => "RoutesServed",
            Self::PolicyAllowsPods => "PolicyAllowsPods",
            Self::CredentialsValid => "CredentialsValid",
            Self::ClockInSync => "ClockInSync",
            Self::CniConfigWritten => "CNIConfigWritten",
            Self::NetworkReady => "NetworkReady",
            Self::ForwardingAllowed => "ForwardingAllowed",
            Self::IpsAvailable => "IPsAvailable",
            Self::SocketOpen => "SocketOpen",
            Self::OrphansCollected => "OrphansCollected",
        }
    }

    /// Whether the node is unready while it does not hold.
    pub fn is_required(self) -> bool {
        match self {
            Self::PodCidrKnown
            | Self::MeshJoined
            | Self::RoutesServed
            | Self::PolicyAllowsPods
            | Self::CniConfigWritten
            | Self::NetworkReady
            | Self::ForwardingAllowed
            | Self::SocketOpen => true,
            Self::ConfigurationLoaded
            | Self::KubernetesReachable
            | Self::NoAddressOverlap
            | Self::HeadscaleReachable
            | Self::PodCidrUnique
            | Self::CredentialsValid
            | Self::ClockInSync
            | Self::IpsAvailable
            | Self::OrphansCollected => false,
        }
    }
}

/// How a condition is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Whether it holds.
    pub holds: bool,
    /// What a person should know: what was found, or what is wrong and how to mend it.
    pub message: String,
    /// When it began to be so.
    pub since: SystemTime,
}

/// All conditions; those that nobody has reported yet do not hold.
#[derive(Debug)]
pub struct Conditions {
    states: Mutex<BTreeMap<Condition, State>>,
}

impl Default for Conditions {
    fn default() -> Self {
        let unknown = State {
            holds: false,
            message: "not looked at yet".to_owned(),
            since: SystemTime::now(),
        };
        let states = Condition::ALL.map(|condition| (condition, unknown.clone()));
        Self {
            states: Mutex::new(states.into()),
        }
    }
}

/// How a report differs from the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// It began to hold, or ceased to.
    Flipped,
    /// It is as it was, and there is something else to say about it.
    Reworded,
}

impl Conditions {
    /// Notes that a condition holds.
    pub fn holds(&self, condition: Condition, message: impl fmt::Display) {
        self.set(condition, true, &message.to_string());
    }

    /// Notes that a condition does not hold, and what to do about it.
    pub fn fails(&self, condition: Condition, message: impl fmt::Display) {
        self.set(condition, false, &message.to_string());
    }

    fn set(&self, condition: Condition, holds: bool, message: &str) {
        let changed = self.note(condition, holds, message, SystemTime::now());
        if let Some(change) = changed {
            log(condition, holds, message, change);
        }
    }

    /// Keeps what was reported, and says what is new about it.
    fn note(
        &self,
        condition: Condition,
        holds: bool,
        message: &str,
        now: SystemTime,
    ) -> Option<Change> {
        let mut states = self.lock();
        let state = states.get_mut(&condition)?;
        let change = if state.holds != holds {
            state.since = now;
            Change::Flipped
        } else if state.message != message {
            Change::Reworded
        } else {
            return None;
        };
        state.holds = holds;
        message.clone_into(&mut state.message);
        Some(change)
    }

    /// How all of them are, in order.
    pub fn snapshot(&self) -> Vec<(Condition, State)> {
        self.lock()
            .iter()
            .map(|(condition, state)| (*condition, state.clone()))
            .collect()
    }

    /// Whether all that are required hold.
    pub fn is_ready(&self) -> bool {
        self.lock()
            .iter()
            .all(|(condition, state)| state.holds || !condition.is_required())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Condition, State>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A condition that holds with another message is no news; one that fails for another reason is.
fn level(condition: Condition, holds: bool, change: Change) -> Level {
    match (holds, change) {
        (true, Change::Flipped) => Level::INFO,
        (true, Change::Reworded) => Level::DEBUG,
        (false, _) if condition.is_required() => Level::ERROR,
        (false, _) => Level::WARN,
    }
}

fn log(condition: Condition, holds: bool, message: &str, change: Change) {
    let name = condition.name();
    let text = if holds {
        "condition holds"
    } else {
        "condition does not hold"
    };
    match level(condition, holds, change) {
        Level::INFO => tracing::info!(condition = name, reason = message, "{text}"),
        Level::WARN => tracing::warn!(condition = name, reason = message, "{text}"),
        Level::ERROR => tracing::error!(condition = name, reason = message, "{text}"),
        _ => tracing::debug!(condition = name, reason = message, "{text}"),
    }
}

#[cfg(test)]
mod tests;
