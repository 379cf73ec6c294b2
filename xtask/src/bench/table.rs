//! Costs as a Markdown table.

use std::time::Duration;

use super::call::Cost;

/// The columns of every row.
pub(super) const HEAD: &str = "\
| call | by | wall p50 | p90 | p99 | CPU p50 | p90 | p99 |
|---|---|--:|--:|--:|--:|--:|--:|";

const PERCENTILES: [usize; 3] = [50, 90, 99];

/// What somebody's calls cost.
type Series<'a> = (&'a str, Vec<Cost>);

/// One row of milliseconds.
pub(super) fn row(verb: &str, by: &str, costs: &[Cost]) -> String {
    line(verb, by, &all_millis(costs).map(|ms| format!("{ms:.2} ms")))
}

/// Two rows, and what the second has over the first.
pub(super) fn compare(verb: &str, [a, b]: &[Series<'_>; 2]) -> String {
    let (first, second) = (all_millis(&a.1), all_millis(&b.1));
    let with = |f: fn(f64, f64) -> String| std::array::from_fn(|i| f(first[i], second[i]));
    [
        row(verb, a.0, &a.1),
        row(verb, b.0, &b.1),
        line(
            verb,
            "difference",
            &with(|a, b| format!("{:+.2} ms", b - a)),
        ),
        line(verb, "ratio", &with(|a, b| format!("{:.2}", b / a))),
    ]
    .join("\n")
}

/// A time as text.
pub(super) fn millis(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1000.0)
}

/// A percentile of the wall time.
pub(super) fn wall(costs: &[Cost], percent: usize) -> Duration {
    let times: Vec<Duration> = costs.iter().map(|cost| cost.wall).collect();
    percentile(&times, percent)
}

/// The median of the processor time.
pub(super) fn cpu(costs: &[Cost]) -> Duration {
    let times: Vec<Duration> = costs.iter().map(|cost| cost.cpu).collect();
    percentile(&times, 50)
}

/// How many times one is in the other.
pub(super) fn ratio(of: Duration, to: Duration) -> f64 {
    of.as_secs_f64() / to.as_secs_f64().max(f64::EPSILON)
}

fn line(verb: &str, by: &str, columns: &[String; 6]) -> String {
    format!("| {verb} | {by} | {} |", columns.join(" | "))
}

fn all_millis(costs: &[Cost]) -> [f64; 6] {
    let wall: Vec<Duration> = costs.iter().map(|cost| cost.wall).collect();
    let cpu: Vec<Duration> = costs.iter().map(|cost| cost.cpu).collect();
    let (wall, cpu) = (percentiles(&wall), percentiles(&cpu));
    [wall[0], wall[1], wall[2], cpu[0], cpu[1], cpu[2]].map(|time| time.as_secs_f64() * 1000.0)
}

fn percentiles(times: &[Duration]) -> [Duration; 3] {
    PERCENTILES.map(|percent| percentile(times, percent))
}

/// By nearest rank: a time that was measured.
pub(super) fn percentile(times: &[Duration], percent: usize) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    let rank = (times.len() * percent).div_ceil(100).max(1);
    times.get(rank - 1).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(millis: impl Iterator<Item = u64>) -> Vec<Cost> {
        let cost = |ms| Cost {
            wall: Duration::from_millis(ms),
            cpu: Duration::from_millis(ms),
        };
        millis.map(cost).collect()
    }

    #[test]
    fn percentiles_are_measured_values() {
        let of = |count: u64| {
            let times: Vec<_> = (1..=count).rev().map(Duration::from_millis).collect();
            percentiles(&times).map(|time| time.as_millis())
        };
        assert_eq!(of(100), [50, 90, 99]);
        assert_eq!(of(3), [2, 3, 3]);
        assert_eq!(of(1), [1, 1, 1]);
    }

    #[test]
    fn a_comparison_shows_both_and_what_the_second_adds() {
        let rows = compare("ADD", &[("x", costs(1..=100)), ("y", costs(2..=101))]);
        let rows: Vec<&str> = rows.lines().collect();
        assert!(
            rows[0].starts_with("| ADD | x | 50.00 ms | 90.00 ms | 99.00 ms |"),
            "{}",
            rows[0]
        );
        assert!(rows[1].starts_with("| ADD | y | 51.00 ms |"), "{}", rows[1]);
        assert!(
            rows[2].starts_with("| ADD | difference | +1.00 ms |"),
            "{}",
            rows[2]
        );
        assert!(rows[3].starts_with("| ADD | ratio | 1.02 |"), "{}", rows[3]);
    }
}
