//! Exponential backoff: each delay is twice the one before, from `initial` to `max`.

use std::time::{Duration, Instant};

#[derive(Clone, Debug)]
pub struct Backoff {
    initial: Duration,
    max: Duration,
    attempts: u32,
    due: Option<Instant>,
}

impl Backoff {
    pub const fn new(initial: Duration, max: Duration) -> Self {
        Self {
            initial,
            max,
            attempts: 0,
            due: None,
        }
    }

    /// The delay after this many attempts.
    pub fn delay([initial, max]: [Duration; 2], attempts: u32) -> Duration {
        let factor = 2_u32.saturating_pow(attempts.clamp(1, 16) - 1);
        initial.saturating_mul(factor).min(max)
    }

    /// Counts an attempt and returns the delay until the next one.
    pub fn next(&mut self, now: Instant) -> Duration {
        self.attempts = self.attempts.saturating_add(1);
        let delay = Self::delay([self.initial, self.max], self.attempts);
        self.due = Some(now + delay);
        delay
    }

    pub fn reset(&mut self) {
        (self.attempts, self.due) = (0, None);
    }

    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// True before the first attempt.
    pub fn is_due(&self, now: Instant) -> bool {
        self.due.is_none_or(|due| now >= due)
    }

    pub fn remaining(&self, now: Instant) -> Duration {
        let left = |due: Instant| due.saturating_duration_since(now);
        self.due.map(left).unwrap_or_default()
    }

    /// Waits for `is_pending` to end by itself: true when a delay has passed and it has not. The first
    /// delay begins at the first call, and a call without `is_pending` resets it.
    pub fn is_overdue(&mut self, is_pending: bool, now: Instant) -> bool {
        if !is_pending {
            self.reset();
            return false;
        }
        if self.due.is_none() {
            self.next(now);
            return false;
        }
        let is_overdue = self.is_due(now);
        if is_overdue {
            self.next(now);
        }
        is_overdue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn each_delay_is_twice_the_one_before_up_to_the_maximum() {
        let (mut backoff, start) = (Backoff::new(seconds(2), seconds(60)), Instant::now());
        let attempts = |backoff: &mut Backoff, of: u64| -> Vec<u64> {
            let is_due = |second: &u64| {
                let now = start + seconds(*second);
                let is_due = backoff.is_due(now);
                if is_due {
                    backoff.next(now);
                }
                is_due
            };
            (0..of).filter(is_due).collect()
        };
        assert_eq!(attempts(&mut backoff, 200), [0, 2, 6, 14, 30, 62, 122, 182]);
        backoff.reset();
        assert_eq!(attempts(&mut backoff, 6), [0, 2]);
    }

    #[test]
    fn a_pending_state_is_overdue_less_and_less_often_until_it_ends() {
        let (mut backoff, start) = (Backoff::new(seconds(5), seconds(60)), Instant::now());
        let is_overdue = |second: &u64| {
            let is_pending = *second != 240;
            backoff.is_overdue(is_pending, start + seconds(*second))
        };
        let overdue: Vec<u64> = (0..260).filter(is_overdue).collect();
        assert_eq!(overdue, [5, 15, 35, 75, 135, 195, 246, 256]);
    }
}
