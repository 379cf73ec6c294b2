//! Which condition changes become Events: failures that last, and their end. Pure.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use node_core::conditions::{Condition, ConditionReport};

/// Shorter failures are normal: nodes start, and tailscaled reconnects.
const MIN_DURATION: Duration = Duration::from_secs(30);

/// The conditions whose failure has an Event.
#[derive(Debug, Default)]
pub(super) struct ReportedFailures {
    failing: BTreeSet<Condition>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConditionEvent {
    pub(super) condition: Condition,
    pub(super) is_true: bool,
    pub(super) message: String,
}

impl ReportedFailures {
    /// The Events that are due.
    pub(super) fn due(
        &self,
        conditions: &[(Condition, ConditionReport)],
        now: SystemTime,
    ) -> Vec<ConditionEvent> {
        let is_due = |(condition, state): &&(Condition, ConditionReport)| {
            let lasted = now.duration_since(state.since).unwrap_or_default();
            match (state.is_true(), self.failing.contains(condition)) {
                (true, was_reported) => was_reported,
                (false, was_reported) => !was_reported && lasted >= MIN_DURATION,
            }
        };
        let due = conditions.iter().filter(is_due);
        due.map(|(condition, state)| ConditionEvent {
            condition: *condition,
            is_true: state.is_true(),
            message: state.message.clone(),
        })
        .collect()
    }

    pub(super) fn mark_published(&mut self, event: &ConditionEvent) {
        if event.is_true {
            self.failing.remove(&event.condition);
        } else {
            self.failing.insert(event.condition);
        }
    }
}

#[cfg(test)]
mod tests {
    use node_core::conditions::ConditionStatus;

    use super::*;

    #[test]
    fn a_lasting_failure_has_one_event_and_its_end_another() {
        let at = |seconds: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let state = |is_true: bool, since: u64| {
            let state = ConditionReport {
                status: if is_true {
                    ConditionStatus::True
                } else {
                    ConditionStatus::False
                },
                message: "m".to_owned(),
                since: at(since),
            };
            [(Condition::ClockInSync, state)]
        };
        let mut reported = ReportedFailures::default();
        let mut count = |state: &[(Condition, ConditionReport)], now| {
            let due = reported.due(state, now);
            assert_eq!(reported.due(state, now), due, "due until it is published");
            for event in &due {
                reported.mark_published(event);
            }
            due.len()
        };
        assert_eq!(count(&state(true, 0), at(99)), 0);
        assert_eq!(count(&state(false, 100), at(120)), 0);
        assert_eq!(count(&state(false, 100), at(130)), 1);
        assert_eq!(count(&state(false, 100), at(500)), 0);
        assert_eq!(count(&state(true, 600), at(600)), 1);
        assert_eq!(count(&state(true, 600), at(700)), 0);
        // A short failure has no Event, nor has its end.
        assert_eq!(count(&state(false, 800), at(801)), 0);
        assert_eq!(count(&state(true, 802), at(900)), 0);
    }
}
