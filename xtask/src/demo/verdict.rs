//! What all of it means.

use std::fmt;

use anyhow::{Result, bail};
use lab::SnifferReport;

use super::reach::{Outcome, Way};

/// A list of what must hold.
#[derive(Debug)]
pub(super) struct Verdict(Vec<Check>);

#[derive(Debug)]
struct Check {
    holds: bool,
    what: &'static str,
    found: String,
}

impl Verdict {
    /// Judges what pods saw, and what was to be seen on the wires meanwhile.
    pub(super) fn of(ways: &[Way], accounts: &[SnifferReport]) -> Self {
        let outcomes: Vec<&Outcome> = ways.iter().flat_map(|way| &way.by).collect();
        let count = |is: fn(&Outcome) -> bool| outcomes.iter().filter(|one| is(one)).count();
        let is_reached = |one: &Outcome| matches!(one, Outcome::Reached { .. });
        let is_kept = |one: &Outcome| matches!(one, Outcome::Reached { is_source_kept, .. } if *is_source_kept);
        let of_all = |what, some: usize| Check {
            holds: some == outcomes.len() && some > 0,
            what,
            found: format!("{some} of {}", outcomes.len()),
        };
        let frames: u64 = accounts.iter().map(|account| account.frames).sum();
        let of_wires = |what, look: fn(&SnifferReport) -> Result<()>| {
            let outcome = accounts.iter().try_for_each(look);
            Check {
                holds: outcome.is_ok() && frames > 0,
                what,
                found: match outcome {
                    Ok(()) => format!("{frames} frames looked at"),
                    Err(error) => format!("{error:#}"),
                },
            }
        };
        Self(vec![
            of_all("pods reached each other", count(is_reached)),
            of_all("source addresses were kept", count(is_kept)),
            of_wires(
                "nothing of a pod crossed a wire in clear",
                SnifferReport::check_nothing_in_clear,
            ),
            of_wires("nobody outside was called", SnifferReport::check_no_strays),
        ])
    }

    /// Fails if anything did.
    pub(super) fn conclude(&self) -> Result<()> {
        match self.0.iter().filter(|check| !check.holds).count() {
            0 => Ok(()),
            count => bail!("the demo failed: {count} of {} do not hold", self.0.len()),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Check { holds, what, found } in &self.0 {
            let mark = if *holds { "yes" } else { "NO" };
            writeln!(f, "{mark:<4} {what} ({found})")?;
        }
        match self.conclude() {
            Ok(()) => write!(f, "\nThe mesh works."),
            Err(_) => write!(f, "\nTHE MESH DOES NOT WORK."),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn way(by: [Outcome; 2]) -> Way {
        Way {
            from: "node-1/a".to_owned(),
            to: "node-2/a".to_owned(),
            path: "direct".to_owned(),
            by,
        }
    }

    fn reached(is_source_kept: bool) -> Outcome {
        Outcome::Reached {
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
    fn all_must_hold() {
        let good = [way([reached(true), reached(true)])];
        let verdict = Verdict::of(&good, &[seen(3), seen(4)]);
        verdict.conclude().unwrap();
        let text = verdict.to_string();
        assert!(
            text.starts_with("yes  pods reached each other (2 of 2)\n"),
            "{text}"
        );
        assert!(text.contains("(7 frames looked at)"), "{text}");
        assert!(text.ends_with("The mesh works."), "{text}");
    }

    #[test]
    fn a_lost_packet_a_foreign_source_and_an_unseen_frame_each_fail() {
        let good = || way([reached(true), reached(true)]);
        let lost = [good(), way([reached(true), Outcome::Failed(String::new())])];
        let foreign = [good(), way([reached(false), reached(true)])];
        for ways in [&lost, &foreign] {
            Verdict::of(ways, &[seen(1)]).conclude().unwrap_err();
        }
        let blind = SnifferReport {
            dropped: 1,
            ..seen(5)
        };
        for account in [blind, seen(0)] {
            let verdict = Verdict::of(&[good()], &[account]);
            let error = verdict.conclude().unwrap_err();
            assert_eq!(error.to_string(), "the demo failed: 2 of 4 do not hold");
        }
    }

    #[test]
    fn nothing_tried_is_nothing_shown() {
        assert!(Verdict::of(&[], &[seen(1)]).conclude().is_err());
    }
}
