//! What the server would not do, and when it is asked again.
//!
//! Any news of tailscaled's makes a pass. Without this, a server that is too busy to do what it is asked
//! would be asked the more often.

use std::time::{Duration, Instant};

use crate::control_server::doubled;

/// The first and the longest wait after a refusal.
const AFTER_REFUSAL: [Duration; 2] = [Duration::from_secs(2), Duration::from_mins(1)];

/// The last refusal, if nothing was done since.
#[derive(Debug, Default)]
pub(super) struct RefusedActions {
    last: Option<Rejection>,
}

#[derive(Debug)]
struct Rejection {
    message: String,
    /// How often by now.
    times: u32,
    until: Instant,
}

impl RefusedActions {
    /// Whether it is too soon to ask again.
    pub(super) fn is_held(&self, now: Instant) -> bool {
        self.last.as_ref().is_some_and(|last| now < last.until)
    }

    /// What was refused, and until when that is not asked again.
    pub(super) fn until(&self) -> Option<(String, Instant)> {
        let last = self.last.as_ref()?;
        Some((last.message.clone(), last.until))
    }

    /// It was refused.
    pub(super) fn note(&mut self, message: String, now: Instant) {
        let times = self.last.as_ref().map_or(0, |last| last.times);
        let times = times.saturating_add(1);
        self.last = Some(Rejection {
            message,
            times,
            until: now + doubled(AFTER_REFUSAL, times),
        });
    }

    /// It was done, or need not be done any more.
    pub(super) fn end(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_is_asked_less_and_less_often_until_it_is_done() {
        let (mut refused, start) = (RefusedActions::default(), Instant::now());
        let mut asked = Vec::new();
        for second in 0..200 {
            let now = start + Duration::from_secs(second);
            if !refused.is_held(now) {
                asked.push(second);
                refused.note("busy".to_owned(), now);
            }
        }
        assert_eq!(asked, [0, 2, 6, 14, 30, 62, 122, 182]);
        refused.end();
        assert!(!refused.is_held(start) && refused.until().is_none());
        refused.note("busy".to_owned(), start);
        assert!(!refused.is_held(start + AFTER_REFUSAL[0]));
    }
}
