//! How long to wait for what may never come by itself: longer each time.

use std::time::{Duration, Instant};

/// The longest wait.
const LONGEST: Duration = Duration::from_mins(1);

/// A wait, and what became of those before.
#[derive(Debug)]
pub(crate) struct RetryTimer {
    first: Duration,
    /// When it is over, and how long it was.
    wait: Option<(Instant, Duration)>,
}

impl RetryTimer {
    /// Waits for so long the first time.
    pub(crate) fn new(first: Duration) -> Self {
        Self { first, wait: None }
    }

    /// Whether something has been awaited for long enough to be helped. Each time the next wait is twice
    /// as long, until there is nothing to wait for.
    pub(crate) fn is_over(&mut self, is_awaited: bool, now: Instant) -> bool {
        if !is_awaited {
            self.wait = None;
            return false;
        }
        let first = (now + self.first, self.first);
        let (end, length) = *self.wait.get_or_insert(first);
        if now < end {
            return false;
        }
        let next = (length * 2).min(LONGEST);
        self.wait = Some((now + next, next));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wait_is_longer_until_it_was_for_nothing() {
        let (mut patience, start) = (RetryTimer::new(Duration::from_secs(5)), Instant::now());
        let mut is_over = |second: &u64| {
            let is_awaited = *second != 240;
            patience.is_over(is_awaited, start + Duration::from_secs(*second))
        };
        let helped: Vec<u64> = (0..260).filter(&mut is_over).collect();
        assert_eq!(helped, [5, 15, 35, 75, 135, 195, 246, 256]);
    }
}
