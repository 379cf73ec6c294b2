//! Polls a condition.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

const INTERVAL: Duration = Duration::from_millis(5);
/// For a probe that is costly for a server.
const LONG_INTERVAL: Duration = Duration::from_millis(300);

/// Polls `probe` until it returns something; fails with `what` after `deadline`.
pub fn eventually<T>(
    deadline: Duration,
    what: &str,
    probe: impl FnMut() -> Option<T>,
) -> Result<T> {
    poll(INTERVAL, deadline, what, probe)
}

/// The same with a longer interval, for a probe that is costly for a server.
pub fn eventually_slowly<T>(
    deadline: Duration,
    what: &str,
    probe: impl FnMut() -> Option<T>,
) -> Result<T> {
    poll(LONG_INTERVAL, deadline, what, probe)
}

fn poll<T>(
    interval: Duration,
    deadline: Duration,
    what: &str,
    mut probe: impl FnMut() -> Option<T>,
) -> Result<T> {
    let end = Instant::now() + deadline;
    loop {
        if let Some(answer) = probe() {
            return Ok(answer);
        }
        if Instant::now() >= end {
            bail!("{what}: not within {deadline:?}");
        }
        thread::sleep(interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_the_condition() {
        let error = eventually(Duration::ZERO, "pigs fly", || None::<()>).unwrap_err();
        assert_eq!(error.to_string(), "pigs fly: not within 0ns");
    }

    #[test]
    fn the_first_result_ends_the_wait() {
        let mut tries = 0;
        let third = || {
            tries += 1;
            (tries == 3).then_some(tries)
        };
        assert_eq!(
            eventually(Duration::from_secs(5), "third", third).unwrap(),
            3
        );
    }
}
