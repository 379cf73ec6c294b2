//! Whether the daemon's own loop still turns.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A loop that was silent for longer hangs.
const LONGEST_SILENCE: Duration = Duration::from_secs(30);

/// The last sign of life of the main loop, which gives one every few seconds.
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
    /// A sign of life.
    pub fn beat(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// How long the loop has been silent, if that is too long.
    pub(super) fn silence(&self, now: Instant) -> Option<Duration> {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let silence = now.saturating_duration_since(last);
        (silence > LONGEST_SILENCE).then_some(silence)
    }

    #[cfg(test)]
    pub(super) fn be_silent_for(&self, silence: Duration) {
        *self.last.lock().unwrap() = Instant::now().checked_sub(silence).unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_is_dead_after_half_a_minute_of_silence_and_lives_again_with_a_beat() {
        let heartbeat = Heartbeat::default();
        let now = Instant::now();
        assert_eq!(heartbeat.silence(now), None);
        assert_eq!(heartbeat.silence(now + LONGEST_SILENCE / 2), None);
        let later = now + LONGEST_SILENCE + Duration::from_secs(1);
        assert!(heartbeat.silence(later).unwrap() > LONGEST_SILENCE);
        heartbeat.be_silent_for(Duration::from_mins(1));
        assert!(heartbeat.silence(Instant::now()).is_some());
        heartbeat.beat();
        assert_eq!(heartbeat.silence(Instant::now()), None);
    }
}
