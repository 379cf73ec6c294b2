//! The retry policy of address allocation, for the linked-in store and for IPAM plugins that
//! `headcni` executes.

use std::thread;
use std::time::Duration;

const MAX_ATTEMPTS: u32 = 3;
const FIRST_BACKOFF: Duration = Duration::from_millis(20);
const BACKOFF_FACTOR: u32 = 4;

/// Runs `attempt` up to three times, with a backoff of 20 ms and then 80 ms.
///
/// `before_retry` gets the error of a failed attempt. It returns `Ok` to retry, after clean-up if
/// need be, and `Err` to give up.
pub fn retry<T, E>(
    mut attempt: impl FnMut() -> Result<T, E>,
    mut before_retry: impl FnMut(E) -> Result<(), E>,
) -> Result<T, E> {
    let mut backoff = FIRST_BACKOFF;
    for _ in 1..MAX_ATTEMPTS {
        match attempt() {
            Ok(done) => return Ok(done),
            Err(error) => before_retry(error)?,
        }
        thread::sleep(backoff);
        backoff *= BACKOFF_FACTOR;
    }
    attempt()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::succeeds_at_once(0, 3, Ok(1))]
    #[case::succeeds_at_the_third_attempt(2, 3, Ok(3))]
    #[case::gives_up_after_the_third_attempt(9, 3, Err(3))]
    #[case::gives_up_at_a_permanent_error(9, 1, Err(1))]
    fn an_attempt_that_fails_is_repeated_twice(
        #[case] failures: u32,
        #[case] permanent_from: u32,
        #[case] expected: Result<u32, u32>,
    ) {
        let mut attempts = 0;
        let outcome = retry(
            || {
                attempts += 1;
                if attempts > failures {
                    Ok(attempts)
                } else {
                    Err(attempts)
                }
            },
            |error| {
                if error < permanent_from {
                    Ok(())
                } else {
                    Err(error)
                }
            },
        );
        assert_eq!(outcome, expected);
    }
}
