//! Conditions as JSON, for `/ready` and for whoever asks on the socket.

use std::time::SystemTime;

use jiff::Timestamp;
use serde::Serialize;

use super::{Condition, Conditions, State};

/// Whether the node is of use, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Whether all required conditions hold.
    pub ready: bool,
    /// All conditions.
    pub conditions: Vec<ConditionReport>,
}

/// One condition, in the words of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConditionReport {
    /// Its name.
    pub name: &'static str,
    /// `True` or `False`.
    pub status: &'static str,
    /// Whether the node is unready without it.
    pub required: bool,
    /// What a person should know.
    pub message: String,
    /// When it began to be so: RFC 3339, UTC.
    pub since: String,
}

impl Conditions {
    /// All that there is to say about them, of one moment.
    pub fn report(&self) -> Report {
        let states = self.snapshot();
        Report {
            ready: states
                .iter()
                .all(|(condition, state)| state.holds || !condition.is_required()),
            conditions: states.into_iter().map(ConditionReport::from).collect(),
        }
    }
}

impl From<(Condition, State)> for ConditionReport {
    fn from((condition, state): (Condition, State)) -> Self {
        Self {
            name: condition.name(),
            status: if state.holds { "True" } else { "False" },
            required: condition.is_required(),
            message: state.message,
            since: timestamp(state.since),
        }
    }
}

fn timestamp(time: SystemTime) -> String {
    let time = Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH);
    format!("{time:.3}")
}
