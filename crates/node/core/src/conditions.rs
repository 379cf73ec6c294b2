//! The health of this node as named conditions: the body of `/ready`.
//!
//! Each controller reports its conditions after every reconcile. Only changes are logged.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use api::messages::{self, Readiness};
use jiff::Timestamp;
use serde::Serialize;
use tracing::Level;

pub use api::messages::ConditionStatus;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Condition {
    /// The file that the last SIGHUP read is in force.
    ConfigurationLoaded,
    /// The Kubernetes API answers, or is disabled.
    KubernetesReachable,
    /// The pod CIDRs of this node are known.
    PodCidrKnown,
    /// Only tailnet nodes use tailnet addresses.
    NoAddressOverlap,
    /// This node is logged in to the tailnet.
    MeshJoined,
    /// Headscale answers, and its API version is supported.
    HeadscaleReachable,
    /// No other node has this node's pod CIDRs.
    PodCidrUnique,
    /// Headscale serves this node's pod CIDRs as primary routes.
    RoutesServed,
    /// Headscale's ACL policy allows pod-to-pod traffic.
    PolicyAllowsPods,
    /// No key expires soon.
    CredentialsValid,
    /// This node's clock agrees with Headscale's.
    ClockInSync,
    /// The conflist and subnet.env are written.
    CniConfigWritten,
    /// Forwarding, rules, routes, gateways and nftables are as desired.
    NetworkReady,
    /// No other firewall drops pods' packets.
    ForwardingAllowed,
    /// There are free addresses for new pods.
    IpsAvailable,
    /// The daemon's socket accepts connections.
    SocketOpen,
    /// Orphans were found and collected.
    OrphansCollected,
}

impl Condition {
    /// In the order in which they become True.
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

    /// Whether the node is unready unless it is True.
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

/// What was reported last about a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionReport {
    pub status: ConditionStatus,
    /// What was observed, and the remedy if there is one.
    pub message: String,
    /// When `status` last changed.
    pub since: SystemTime,
}

impl ConditionReport {
    pub fn is_true(&self) -> bool {
        self.status == ConditionStatus::True
    }
}

/// All conditions: Unknown until they are reported.
#[derive(Debug)]
pub struct Conditions {
    reports: Mutex<BTreeMap<Condition, ConditionReport>>,
}

impl Default for Conditions {
    fn default() -> Self {
        let unknown = ConditionReport {
            status: ConditionStatus::Unknown,
            message: "not reported yet".to_owned(),
            since: SystemTime::now(),
        };
        let reports = Condition::ALL.map(|condition| (condition, unknown.clone()));
        Self {
            reports: Mutex::new(reports.into()),
        }
    }
}

/// How a report differs from the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Status,
    Message,
}

impl Conditions {
    /// Reports a condition as True.
    pub fn holds(&self, condition: Condition, message: impl fmt::Display) {
        self.set(condition, ConditionStatus::True, &message.to_string());
    }

    /// Reports a condition as False; the message includes the remedy.
    pub fn fails(&self, condition: Condition, message: impl fmt::Display) {
        self.set(condition, ConditionStatus::False, &message.to_string());
    }

    fn set(&self, condition: Condition, status: ConditionStatus, message: &str) {
        let changed = self.update(condition, status, message, SystemTime::now());
        if let Some(change) = changed {
            log(condition, status, message, change);
        }
    }

    fn update(
        &self,
        condition: Condition,
        status: ConditionStatus,
        message: &str,
        now: SystemTime,
    ) -> Option<Change> {
        let mut reports = self.lock();
        let report = reports.get_mut(&condition)?;
        let change = if report.status != status {
            report.since = now;
            Change::Status
        } else if report.message != message {
            Change::Message
        } else {
            return None;
        };
        report.status = status;
        message.clone_into(&mut report.message);
        Some(change)
    }

    /// All conditions in order.
    pub fn snapshot(&self) -> Vec<(Condition, ConditionReport)> {
        self.lock()
            .iter()
            .map(|(condition, report)| (*condition, report.clone()))
            .collect()
    }

    /// Whether all required conditions are True.
    pub fn is_ready(&self) -> bool {
        self.lock()
            .iter()
            .all(|(condition, report)| report.is_true() || !condition.is_required())
    }

    /// The conditions as `/ready` and `/v1/conditions` have them.
    pub fn readiness(&self) -> Readiness {
        let reports = self.snapshot();
        Readiness {
            ready: reports
                .iter()
                .all(|(condition, report)| report.is_true() || !condition.is_required()),
            conditions: reports.into_iter().map(to_message).collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Condition, ConditionReport>> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn to_message((condition, report): (Condition, ConditionReport)) -> messages::Condition {
    let since = Timestamp::try_from(report.since).unwrap_or(Timestamp::UNIX_EPOCH);
    messages::Condition {
        name: condition.name().to_owned(),
        status: report.status,
        required: condition.is_required(),
        reason: None,
        message: report.message,
        remedy: None,
        since: format!("{since:.3}"),
    }
}

/// A new message matters to operators only while the condition is not True.
fn level(condition: Condition, status: ConditionStatus, change: Change) -> Level {
    match (status, change) {
        (ConditionStatus::True, Change::Status) => Level::INFO,
        (ConditionStatus::True, Change::Message) => Level::DEBUG,
        _ if condition.is_required() => Level::ERROR,
        _ => Level::WARN,
    }
}

fn log(condition: Condition, status: ConditionStatus, message: &str, change: Change) {
    let name = condition.name();
    let text = match status {
        ConditionStatus::True => "condition is True",
        ConditionStatus::False => "condition is False",
        ConditionStatus::Unknown => "condition is Unknown",
    };
    match level(condition, status, change) {
        Level::INFO => tracing::info!(condition = name, reason = message, "{text}"),
        Level::WARN => tracing::warn!(condition = name, reason = message, "{text}"),
        Level::ERROR => tracing::error!(condition = name, reason = message, "{text}"),
        _ => tracing::debug!(condition = name, reason = message, "{text}"),
    }
}

#[cfg(test)]
mod tests;
