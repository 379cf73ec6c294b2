//! Waiting for a condition, never for a time.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

const PAUSE: Duration = Duration::from_millis(5);

/// Between two questions that cost whoever answers them much.
const LONG_PAUSE: Duration = Duration::from_millis(300);

/// Asks `probe` until it has an answer; after `deadline` says that `what` did not come.
pub fn eventually<T>(
    deadline: Duration,
    what: &str,
    probe: impl FnMut() -> Option<T>,
) -> Result<T> {
    ask(PAUSE, deadline, what, probe)
}

/// The same for a `probe` that others work for, as an API server does.
pub fn eventually_and_gently<T>(
    deadline: Duration,
    what: &str,
    probe: impl FnMut() -> Option<T>,
) -> Result<T> {
    ask(LONG_PAUSE, deadline, what, probe)
}

fn ask<T>(
    pause: Duration,
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
        thread::sleep(pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_that_never_holds_is_named_in_the_error() {
        let error = eventually(Duration::ZERO, "pigs fly", || None::<()>).unwrap_err();
        assert_eq!(error.to_string(), "pigs fly: not within 0ns");
    }

    #[test]
    fn the_first_answer_ends_the_wait() {
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
