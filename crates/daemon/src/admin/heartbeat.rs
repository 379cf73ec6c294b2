//! Liveness of the daemon's main loop.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A main loop without a heartbeat for longer hangs.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The last heartbeat of the main loop, which has one every few seconds.
#[derive(Debug)]
pub struct Heartbeat {
    last: Mutex<Instant>,
}

impl Default for Heartbeat {
    fn default() -> Self {
        Self {
            last: Mutex::new(Instant::now()),
        }
    }
}

impl Heartbeat {
    /// Records a heartbeat.
    pub fn beat(&self) {
        self.set(Instant::now());
    }

    /// The time since the last heartbeat, if that exceeds the timeout.
    pub(super) fn overdue(&self, now: Instant) -> Option<Duration> {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let age = now.saturating_duration_since(last);
        (age > TIMEOUT).then_some(age)
    }

    pub(super) fn set(&self, last: Instant) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = last;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_hangs_after_30_seconds_without_a_heartbeat_and_recovers_with_one() {
        let heartbeat = Heartbeat::default();
        let now = Instant::now();
        assert_eq!(heartbeat.overdue(now), None);
        assert_eq!(heartbeat.overdue(now + TIMEOUT / 2), None);
        let later = now + TIMEOUT + Duration::from_secs(1);
        assert!(heartbeat.overdue(later).unwrap() > TIMEOUT);
        heartbeat.set(now.checked_sub(Duration::from_mins(1)).unwrap());
        assert!(heartbeat.overdue(Instant::now()).is_some());
        heartbeat.beat();
        assert_eq!(heartbeat.overdue(Instant::now()), None);
    }
}
