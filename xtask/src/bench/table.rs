//! Markdown tables.

use std::fs;
use std::thread::available_parallelism;
use std::time::Duration;

use anyhow::{Context, Result};

use super::call::Cost;

/// A table whose first columns hold text and whose others hold numbers.
pub(super) fn markdown(
    text_columns: usize,
    head: &str,
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    let columns = head.split(" | ").count();
    let rules = (0..columns).map(|nth| if nth < text_columns { "---" } else { "--:" });
    let rules = rules.collect::<Vec<_>>().join("|");
    let mut table = format!("| {head} |\n|{rules}|\n");
    let line = |row: Vec<String>| format!("| {} |\n", row.join(" | "));
    table.extend(rows.into_iter().map(line));
    table
}

/// A goal, what was measured, and whether that is enough; `None` if it was not measured.
pub(super) type Goal = (String, String, Option<bool>);

pub(super) fn goals(goals: impl IntoIterator<Item = Goal>) -> String {
    let rows = goals.into_iter().map(|(goal, measured, is_met)| {
        let result = match is_met {
            Some(true) => "met",
            Some(false) => "**missed**",
            None => "not measured",
        };
        vec![goal, measured, result.to_owned()]
    });
    markdown(1, "goal | measured | result", rows)
}

/// Kernel and processors of this machine.
pub(super) fn machine() -> Result<String> {
    let release = "/proc/sys/kernel/osrelease";
    let kernel = fs::read_to_string(release).with_context(|| format!("read {release}"))?;
    let processors = available_parallelism().context("count the processors")?;
    Ok(format!("Linux {}, {processors} processors", kernel.trim()))
}

pub(super) fn millis(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1000.0)
}

/// A percentile of the wall time.
pub(super) fn wall(costs: &[Cost], percent: usize) -> Duration {
    let times: Vec<Duration> = costs.iter().map(|cost| cost.wall).collect();
    percentile(&times, percent)
}

/// A percentile of the processor time.
pub(super) fn cpu(costs: &[Cost], percent: usize) -> Duration {
    let times: Vec<Duration> = costs.iter().map(|cost| cost.cpu).collect();
    percentile(&times, percent)
}

pub(super) fn ratio(of: Duration, to: Duration) -> f64 {
    of.as_secs_f64() / to.as_secs_f64().max(f64::EPSILON)
}

/// By nearest rank, so that it is a measured value.
pub(super) fn percentile(times: &[Duration], percent: usize) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    let rank = (times.len() * percent).div_ceil(100).max(1);
    times.get(rank - 1).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_measured_values() {
        let of = |count: u64| {
            let times: Vec<_> = (1..=count).rev().map(Duration::from_millis).collect();
            [50, 90, 99].map(|percent| percentile(&times, percent).as_millis())
        };
        assert_eq!(of(100), [50, 90, 99]);
        assert_eq!(of(3), [2, 3, 3]);
        assert_eq!(of(1), [1, 1, 1]);
    }

    #[test]
    fn a_goal_is_met_or_missed_or_not_measured() {
        let goal = |is_met| ("ADD ≤ 2".to_owned(), "1".to_owned(), is_met);
        let table = goals([goal(Some(true)), goal(Some(false)), goal(None)]);
        let expected = "\
| goal | measured | result |
|---|--:|--:|
| ADD ≤ 2 | 1 | met |
| ADD ≤ 2 | 1 | **missed** |
| ADD ≤ 2 | 1 | not measured |
";
        assert_eq!(table, expected);
    }
}
