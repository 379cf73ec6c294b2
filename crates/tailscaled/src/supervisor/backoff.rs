//! How long to wait before something is started again.

use std::time::Duration;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);
/// What ran this long did not fail at its start.
const STEADY: Duration = Duration::from_mins(1);

/// Waits that grow with each failure in a row.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    wait: Duration,
}

impl Backoff {
    /// The wait after something ran for a while. After a long one there is none: each second
    /// without a tailscaled is one without traffic.
    pub(super) fn after(&mut self, ran: Duration) -> Duration {
        if ran >= STEADY {
            self.wait = Duration::ZERO;
            return Duration::ZERO;
        }
        self.wait = (self.wait * 2).clamp(FIRST, LONGEST);
        self.wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_until_something_runs_for_long() {
        let mut backoff = Backoff::default();
        let mut seconds = |ran| backoff.after(Duration::from_secs(ran)).as_secs();
        let short: Vec<u64> = (0..7).map(|_| seconds(3)).collect();
        assert_eq!(short, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(seconds(3600), 0);
        assert_eq!(seconds(3), 1);
    }
}
