//! Delays between attempts, reset by an attempt that stayed up.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

#[derive(Debug)]
pub(crate) struct Backoff {
    policy: ExponentialBuilder,
    delays: ExponentialBackoff,
    stable_after: Duration,
}

impl Backoff {
    /// Delays double from `min` to `max`. An uptime of `stable_after` starts again with `min`.
    pub(crate) fn new(min: Duration, max: Duration, stable_after: Duration) -> Self {
        let policy = ExponentialBuilder::new()
            .with_min_delay(min)
            .with_max_delay(max)
            .without_max_times();
        Self {
            policy,
            delays: policy.build(),
            stable_after,
        }
    }

    pub(crate) fn is_stable(&self, uptime: Duration) -> bool {
        uptime >= self.stable_after
    }

    pub(crate) fn reset(&mut self) {
        self.delays = self.policy.build();
    }

    /// The delay after an attempt that was up for `uptime`.
    pub(crate) fn after(&mut self, uptime: Duration) -> Duration {
        if self.is_stable(uptime) {
            self.reset();
        }
        self.delays.next().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_until_an_attempt_was_stable() {
        let [min, max] = [1, 30].map(Duration::from_secs);
        let mut backoff = Backoff::new(min, max, Duration::from_mins(1));
        let mut seconds = |uptime| backoff.after(Duration::from_secs(uptime)).as_secs();
        let short: Vec<u64> = (0..7).map(|_| seconds(3)).collect();
        assert_eq!(short, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(seconds(3600), 1);
        assert_eq!(seconds(3), 2);
    }
}
