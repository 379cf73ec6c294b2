//! What the demo must show.

use std::fmt;

use anyhow::{Result, bail};
use lab::SnifferReport;

use super::pairs::{Pair, PairResult};

#[derive(Debug)]
pub(super) struct Checks(Vec<Check>);

#[derive(Debug)]
struct Check {
    passed: bool,
    name: &'static str,
    detail: String,
}

impl Checks {
    /// From the results of the pairs and the frames that the sniffers saw meanwhile.
    pub(super) fn of(pairs: &[Pair], accounts: &[SnifferReport]) -> Self {
        let results: Vec<&PairResult> = pairs.iter().flat_map(|pair| &pair.results).collect();
        let count = |is: fn(&PairResult) -> bool| results.iter().filter(|one| is(one)).count();
        let is_reached = |one: &PairResult| matches!(one, PairResult::Reached { .. });
        let is_kept = |one: &PairResult| matches!(one, PairResult::Reached { is_source_kept, .. } if *is_source_kept);
        let of_all = |name, some: usize| Check {
            passed: some == results.len() && some > 0,
            name,
            detail: format!("{some} of {}", results.len()),
        };
        let frames: u64 = accounts.iter().map(|account| account.frames).sum();
        let of_frames = |name, check: fn(&SnifferReport) -> Result<()>| {
            let outcome = accounts.iter().try_for_each(check);
            Check {
                passed: outcome.is_ok() && frames > 0,
                name,
                detail: match outcome {
                    Ok(()) => format!("{frames} frames captured"),
                    Err(error) => format!("{error:#}"),
                },
            }
        };
        Self(vec![
            of_all("pods reached each other", count(is_reached)),
            of_all("source addresses were kept", count(is_kept)),
            of_frames(
                "no packet of a pod crossed a wire unencrypted",
                SnifferReport::check_nothing_in_clear,
            ),
            of_frames(
                "no packet left for an address outside",
                SnifferReport::check_no_strays,
            ),
        ])
    }

    /// Fails if a check failed.
    pub(super) fn result(&self) -> Result<()> {
        match self.0.iter().filter(|check| !check.passed).count() {
            0 => Ok(()),
            count => bail!("the demo failed: {count} of {} checks", self.0.len()),
        }
    }
}

impl fmt::Display for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Check {
            passed,
            name,
            detail,
        } in &self.0
        {
            let mark = if *passed { "yes" } else { "NO" };
            writeln!(f, "{mark:<4} {name} ({detail})")?;
        }
        match self.result() {
            Ok(()) => write!(f, "\nThe mesh works."),
            Err(_) => write!(f, "\nTHE MESH DOES NOT WORK."),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn pair(results: [PairResult; 2]) -> Pair {
        Pair {
            from: "node-1/a".to_owned(),
            to: "node-2/a".to_owned(),
            path: "direct".to_owned(),
            results,
        }
    }

    fn reached(is_source_kept: bool) -> PairResult {
        PairResult::Reached {
            latency: Duration::from_millis(1),
            is_source_kept,
        }
    }

    fn seen(frames: u64) -> SnifferReport {
        SnifferReport {
            frames,
            ..SnifferReport::default()
        }
    }

    #[test]
    fn every_check_must_pass() {
        let good = [pair([reached(true), reached(true)])];
        let checks = Checks::of(&good, &[seen(3), seen(4)]);
        checks.result().unwrap();
        let text = checks.to_string();
        assert!(
            text.starts_with("yes  pods reached each other (2 of 2)\n"),
            "{text}"
        );
        assert!(text.contains("(7 frames captured)"), "{text}");
        assert!(text.ends_with("The mesh works."), "{text}");
    }

    #[test]
    fn a_lost_packet_a_changed_source_and_a_missed_frame_each_fail() {
        let good = || pair([reached(true), reached(true)]);
        let lost = [
            good(),
            pair([reached(true), PairResult::Failed(String::new())]),
        ];
        let foreign = [good(), pair([reached(false), reached(true)])];
        for pairs in [&lost, &foreign] {
            Checks::of(pairs, &[seen(1)]).result().unwrap_err();
        }
        let blind = SnifferReport {
            dropped: 1,
            ..seen(5)
        };
        for account in [blind, seen(0)] {
            let checks = Checks::of(&[good()], &[account]);
            let error = checks.result().unwrap_err();
            assert_eq!(error.to_string(), "the demo failed: 2 of 4 checks");
        }
    }

    #[test]
    fn without_pairs_the_demo_fails() {
        assert!(Checks::of(&[], &[seen(1)]).result().is_err());
    }
}
