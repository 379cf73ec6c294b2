//! What must hold for the node to be of use, by name: the body of `/ready`.
//!
//! A condition is reported by whoever keeps it, as often as it is looked at. A change is logged
//! once, when it happens.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use serde::Serialize;

/// Something that must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Condition {
    /// The file that SIGHUP read last is the one in force.
    ConfigurationLoaded,
    /// It is known which addresses this node's pods get.
    PodCidrKnown,
    /// The CNI configuration is in its place.
    CniConfigWritten,
    /// Forwarding, rules, routes, gateways and nftables are as they should be.
    NetworkReady,
    /// No firewall of somebody else drops what pods send.
    ForwardingAllowed,
    /// There are addresses left for new pods.
    AddressesLeft,
    /// The plugin can reach us.
    SocketOpen,
    /// What pods left behind could be looked at and collected.
    OrphansCollected,
}

impl Condition {
    /// All of them, in the order in which they come to hold.
    pub const ALL: [Self; 8] = [
        Self::ConfigurationLoaded,
        Self::PodCidrKnown,
        Self::CniConfigWritten,
        Self::NetworkReady,
        Self::ForwardingAllowed,
        Self::AddressesLeft,
        Self::SocketOpen,
        Self::OrphansCollected,
    ];

    /// Its name, as `/ready` and metrics have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ConfigurationLoaded => "ConfigurationLoaded",
            Self::PodCidrKnown => "PodCIDRKnown",
            Self::CniConfigWritten => "CNIConfigWritten",
            Self::NetworkReady => "NetworkReady",
            Self::ForwardingAllowed => "ForwardingAllowed",
            Self::AddressesLeft => "AddressesLeft",
            Self::SocketOpen => "SocketOpen",
            Self::OrphansCollected => "OrphansCollected",
        }
    }

    /// Whether the node is unready while it does not hold.
    pub fn is_required(self) -> bool {
        match self {
            Self::PodCidrKnown
            | Self::CniConfigWritten
            | Self::NetworkReady
            | Self::ForwardingAllowed
            | Self::SocketOpen => true,
            Self::ConfigurationLoaded | Self::AddressesLeft | Self::OrphansCollected => false,
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

impl Conditions {
    /// Notes that a condition holds.
    pub fn holds(&self, condition: Condition, message: impl fmt::Display) {
        self.set(condition, true, message.to_string());
    }

    /// Notes that a condition does not hold, and what to do about it.
    pub fn fails(&self, condition: Condition, message: impl fmt::Display) {
        self.set(condition, false, message.to_string());
    }

    fn set(&self, condition: Condition, holds: bool, message: String) {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let before = states.get(&condition);
        if before.is_some_and(|state| state.holds == holds && state.message == message) {
            return;
        }
        let name = condition.name();
        if holds {
            tracing::info!(condition = name, %message, "condition holds");
        } else if condition.is_required() {
            tracing::error!(condition = name, %message, "condition does not hold");
        } else {
            tracing::warn!(condition = name, %message, "condition does not hold");
        }
        let since = match before {
            Some(state) if state.holds == holds => state.since,
            _ => SystemTime::now(),
        };
        states.insert(
            condition,
            State {
                holds,
                message,
                since,
            },
        );
    }

    /// How all of them are, in order.
    pub fn snapshot(&self) -> Vec<(Condition, State)> {
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        states
            .iter()
            .map(|(condition, state)| (*condition, state.clone()))
            .collect()
    }

    /// Whether all that are required hold.
    pub fn is_ready(&self) -> bool {
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        states
            .iter()
            .all(|(condition, state)| state.holds || !condition.is_required())
    }
}
