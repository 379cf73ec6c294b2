//! The measurements as Markdown, and the goals next to them.

use std::time::Duration;

use lab::Latency;

use super::way::{Sent, Way};
use super::{Family, Rates, STREAMS, Series};
use crate::bench::table::{millis, percentile};

/// How much of what nodes have between them pods must have.
const LEAST_RATIO: f64 = 0.95;
const LONGEST_JOIN: Duration = Duration::from_secs(10);

/// What goes through.
pub(super) fn rates(all: &[Rates]) -> String {
    let mut lines = vec![
        "\
TCP, the median of all rounds; ratios are those of one round, and of them the median.

| connections | family | no mesh | nodes | pods | pods / nodes | pods / no mesh |
|--:|---|--:|--:|--:|--:|--:|"
            .to_owned(),
    ];
    for streams in STREAMS {
        for family in Family::ALL {
            let [plain, nodes, pods] = Way::ALL.map(|way| speeds(all, streams, family, way));
            lines.push(format!(
                "| {streams} | {} | {} | {} | {} | {:.2} | {:.2} |",
                family.name(),
                megabits(&plain),
                megabits(&nodes),
                megabits(&pods),
                ratio(&pods, &nodes),
                ratio(&pods, &plain)
            ));
        }
    }
    lines.join("\n")
}

/// What it costs. A busy machine is slower, but has to do the same.
pub(super) fn costs(all: &[Rates]) -> String {
    let mut lines = vec![
        "\
Processor time of both tailscaleds for a gigabyte, with most of what the kernel does to take packets to
pods: the median of all rounds.

| connections | family | nodes | pods | nodes / pods |
|--:|---|--:|--:|--:|"
            .to_owned(),
    ];
    for streams in STREAMS {
        for family in Family::ALL {
            let [nodes, pods] = [Way::Nodes, Way::Pods].map(|way| {
                let sent = find(all, streams, family, way).iter();
                sent.map(|sent| sent.cost).collect::<Vec<f64>>()
            });
            lines.push(format!(
                "| {streams} | {} | {:.2} s | {:.2} s | {:.2} |",
                family.name(),
                median(&nodes),
                median(&pods),
                ratio(&nodes, &pods)
            ));
        }
    }
    lines.join("\n")
}

/// How long packets take: of each round's median and 99th percentile, the median.
pub(super) fn latencies(all: &[Series<Latency>]) -> String {
    let mut lines = vec!["| ping | family | p50 | p99 | lost |\n|---|---|--:|--:|--:|".to_owned()];
    for Series {
        way,
        family,
        rounds,
    } in all
    {
        let median = |of: fn(&Latency) -> Duration| {
            let times: Vec<Duration> = rounds.iter().map(of).collect();
            millis(percentile(&times, 50))
        };
        lines.push(format!(
            "| {} | {} | {} | {} | {} |",
            way.name(),
            family.name(),
            median(|latency| latency.p50),
            median(|latency| latency.p99),
            rounds.iter().map(|latency| latency.lost).sum::<usize>()
        ));
    }
    lines.join("\n")
}

/// How soon nodes served.
pub(super) fn joins(times: &[Duration]) -> String {
    let seconds = |time: &Duration| format!("{:.1} s", time.as_secs_f64());
    let all: Vec<String> = times.iter().map(seconds).collect();
    format!(
        "A node that knows nothing, from the daemon's start until the mesh serves its pods: {}.",
        all.join(", ")
    )
}

/// Whether all is as it should be.
pub(super) fn goals(all: &[Rates], joins: &[Duration]) -> String {
    let row = |goal: &str, measured: String, is_met: bool| {
        let verdict = if is_met { "met" } else { "**missed**" };
        format!("| {goal} | {measured} | {verdict} |")
    };
    let mut lines = vec!["| goal | measured | |\n|---|--:|---|".to_owned()];
    for streams in STREAMS {
        for family in Family::ALL {
            let [nodes, pods] =
                [Way::Nodes, Way::Pods].map(|way| speeds(all, streams, family, way));
            let found = ratio(&pods, &nodes);
            let goal = format!(
                "pods / nodes ≥ {LEAST_RATIO}, {}, {streams} at once",
                family.name()
            );
            lines.push(row(&goal, format!("{found:.2}"), found >= LEAST_RATIO));
        }
    }
    let join = percentile(joins, 50);
    lines.push(row(
        &format!("a node serves within {} s", LONGEST_JOIN.as_secs()),
        format!("{:.1} s", join.as_secs_f64()),
        !joins.is_empty() && join <= LONGEST_JOIN,
    ));
    lines.join("\n")
}

fn speeds(all: &[Rates], streams: u8, family: Family, way: Way) -> Vec<f64> {
    let sent = find(all, streams, family, way).iter();
    sent.map(|sent| sent.bits_per_second).collect()
}

fn find(all: &[Rates], streams: u8, family: Family, way: Way) -> &[Sent] {
    let is_it = |rates: &&Rates| {
        let series = &rates.series;
        (rates.streams, series.family, series.way) == (streams, family, way)
    };
    let found = all.iter().find(is_it);
    found.map_or(&[], |rates| &rates.series.rounds)
}

pub(super) fn megabits(rates: &[f64]) -> String {
    format!("{:.0} Mbit/s", median(rates) / 1e6)
}

/// What the first has of the second: the median of all rounds' own.
pub(super) fn ratio(of: &[f64], to: &[f64]) -> f64 {
    let ratios: Vec<f64> = of.iter().zip(to).map(|(of, to)| of / to).collect();
    median(&ratios)
}

/// By nearest rank, as elsewhere: something that was measured.
fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = sorted.len().div_ceil(2).max(1);
    sorted.get(rank - 1).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(pods: [f64; 3]) -> Vec<Rates> {
        let mut all = super::super::nothing_sent();
        for Rates { series, .. } in &mut all {
            let speeds = match series.way {
                Way::Underlay => [1e9, 2e9, 3e9],
                Way::Nodes => [1e8, 2e8, 3e8],
                Way::Pods => pods,
            };
            let cost = if series.way == Way::Pods { 8.0 } else { 6.0 };
            series.rounds = speeds
                .map(|bits_per_second| Sent {
                    bits_per_second,
                    cost,
                })
                .to_vec();
        }
        all
    }

    #[test]
    fn a_busy_round_does_not_count_against_anybody() {
        // As fast as nodes in two rounds; in the third one, something else went on.
        let all = measured([1e8, 2e8, 1e8]);
        let table = rates(&all);
        let row = "| 1 | IPv4 | 2000 Mbit/s | 200 Mbit/s | 100 Mbit/s | 1.00 | 0.10 |";
        assert!(table.contains(row), "{table}");
        let row = "| 4 | IPv6 | 6.00 s | 8.00 s | 0.75 |";
        assert!(costs(&all).ends_with(row), "{}", costs(&all));
        assert_eq!(
            table.lines().filter(|line| line.contains("Mbit")).count(),
            4
        );
    }

    #[test]
    fn goals_are_met_or_missed() {
        let joins = [3, 9, 60].map(Duration::from_secs);
        let met = goals(&measured([1e8, 2e8, 3e8]), &joins);
        assert_eq!(met.matches("| met |").count(), 5, "{met}");
        let late = [3, 11, 60].map(Duration::from_secs);
        let missed = goals(&measured([0.9e8, 1.8e8, 2.7e8]), &late);
        assert_eq!(missed.matches("**missed**").count(), 5, "{missed}");
        assert_eq!(goals(&[], &[]).matches("**missed**").count(), 5);
    }

    #[test]
    fn a_latency_is_the_median_of_the_rounds() {
        let latency = |ms| Latency {
            least: Duration::from_millis(ms),
            average: Duration::from_millis(ms),
            p50: Duration::from_millis(ms),
            p99: Duration::from_millis(10 * ms),
            lost: 1,
        };
        let series = Series {
            way: Way::Pods,
            family: Family::Ipv6,
            rounds: vec![latency(3), latency(1), latency(2)],
        };
        let text = latencies(&[series]);
        assert!(
            text.ends_with("| pod to pod, mesh | IPv6 | 2.00 ms | 20.00 ms | 3 |"),
            "{text}"
        );
    }
}
