//! The measurements as Markdown, and the goals next to them.

use std::time::Duration;

use lab::Latency;

use super::Rates;
use super::by_way::{ByWay, numbers};
use super::ratio::{Ratio, mean};
use super::way::Sent;
use crate::bench::table::percentile;

/// How much of what nodes have between them pods must have.
const LEAST_RATIO: f64 = 0.95;
const LONGEST_JOIN: Duration = Duration::from_secs(10);

/// What goes through.
pub(super) fn rates(all: &[Rates]) -> String {
    let mut lines = vec![
        "\
TCP, means of all turns; a ratio has its standard error with it.

| connections | family | no mesh | nodes | pods | pods / nodes | pods / no mesh |
|--:|---|--:|--:|--:|--:|--:|"
            .to_owned(),
    ];
    for Rates { streams, sent } in all {
        let [plain, nodes, pods] =
            [&sent.underlay, &sent.nodes, &sent.pods].map(|sent| numbers(sent, speed));
        lines.push(format!(
            "| {streams} | {} | {} | {} | {} | {} | {:.2} |",
            sent.family.name(),
            megabits(&plain),
            megabits(&nodes),
            megabits(&pods),
            sent.pods_to_nodes(speed),
            mean(&pods) / mean(&plain)
        ));
    }
    lines.join("\n")
}

/// What it costs. A busy machine is slower, but has to do the same.
pub(super) fn costs(all: &[Rates]) -> String {
    let mut lines = vec![
        "\
Processor time of both tailscaleds for a gigabyte, with most of what the kernel does to take packets to
pods: means of all turns.

| connections | family | nodes | pods | nodes / pods |
|--:|---|--:|--:|--:|"
            .to_owned(),
    ];
    for Rates { streams, sent } in all {
        let cost = |sent: &Sent| sent.cost;
        lines.push(format!(
            "| {streams} | {} | {:.2} s | {:.2} s | {} |",
            sent.family.name(),
            mean(&numbers(&sent.nodes, cost)),
            mean(&numbers(&sent.pods, cost)),
            sent.nodes_to_pods(cost)
        ));
    }
    lines.join("\n")
}

/// How long packets take.
pub(super) fn latencies(all: &[ByWay<Latency>]) -> String {
    let mut lines = vec![
        "\
Ping: of all turns, the mean of their medians and of their 99th percentiles.

| family | p50 no mesh | nodes | pods | nodes / pods | p99 no mesh | nodes | pods | lost |
|---|--:|--:|--:|--:|--:|--:|--:|--:|"
            .to_owned(),
    ];
    for pings in all {
        let turns = [&pings.underlay, &pings.nodes, &pings.pods];
        let means = |number: fn(&Latency) -> f64| {
            turns.map(|turns| format!("{:.3} ms", mean(&numbers(turns, number)) * 1000.0))
        };
        let all_turns = turns.into_iter().flatten();
        lines.push(format!(
            "| {} | {} | {} | {} | {} |",
            pings.family.name(),
            means(p50).join(" | "),
            pings.nodes_to_pods(p50),
            means(|ping| ping.p99.as_secs_f64()).join(" | "),
            all_turns.map(|ping| ping.lost).sum::<usize>()
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
pub(super) fn goals(rates: &[Rates], pings: &[ByWay<Latency>], joins: &[Duration]) -> String {
    let row = |goal: &str, measured: String, is_met: bool| {
        let verdict = if is_met { "met" } else { "**missed**" };
        format!("| {goal} | {measured} | {verdict} |")
    };
    let mut lines = vec!["| goal | measured | |\n|---|--:|---|".to_owned()];
    let mut compare = |goal: &str, ratio: Ratio| {
        // Without turns it is no number, and not met.
        lines.push(row(goal, ratio.to_string(), ratio.value >= LEAST_RATIO));
    };
    for Rates { streams, sent } in rates {
        let family = sent.family.name();
        let goal = format!("pods / nodes ≥ {LEAST_RATIO}, {family}, {streams} at once");
        compare(&goal, sent.pods_to_nodes(speed));
    }
    for pings in pings {
        let family = pings.family.name();
        let goal = format!("ping, nodes / pods ≥ {LEAST_RATIO}, {family}");
        compare(&goal, pings.nodes_to_pods(p50));
    }
    let join = percentile(joins, 50);
    lines.push(row(
        &format!("a node serves within {} s", LONGEST_JOIN.as_secs()),
        format!("{:.1} s", join.as_secs_f64()),
        !joins.is_empty() && join <= LONGEST_JOIN,
    ));
    lines.join("\n")
}

fn speed(sent: &Sent) -> f64 {
    sent.bits_per_second
}

/// In seconds.
fn p50(ping: &Latency) -> f64 {
    ping.p50.as_secs_f64()
}

pub(super) fn megabits(rates: &[f64]) -> String {
    format!("{:.0} Mbit/s", mean(rates) / 1e6)
}

#[cfg(test)]
mod tests {
    use super::super::{no_latencies, no_rates};
    use super::*;

    fn measured(pods: [f64; 3]) -> Vec<Rates> {
        let sent = |speeds: [f64; 3], cost| {
            let sent = speeds.map(|bits_per_second| Sent {
                bits_per_second,
                cost,
            });
            sent.to_vec()
        };
        let mut all = no_rates();
        for rates in &mut all {
            rates.sent.underlay = sent([1e9, 2e9, 3e9], 0.0);
            rates.sent.nodes = sent([1e8, 2e8, 3e8], 6.0);
            rates.sent.pods = sent(pods, 8.0);
        }
        all
    }

    #[test]
    fn ways_stand_side_by_side() {
        let all = measured([1e8, 2e8, 3e8]);
        let table = rates(&all);
        let row = "| 1 | IPv4 | 2000 Mbit/s | 200 Mbit/s | 200 Mbit/s | 1.000 ± 0.000 | 0.10 |";
        assert!(table.contains(row), "{table}");
        let row = "| 4 | IPv6 | 6.00 s | 8.00 s | 0.750 ± 0.000 |";
        assert!(costs(&all).ends_with(row), "{}", costs(&all));
        assert_eq!(
            table.lines().filter(|line| line.contains("Mbit")).count(),
            4
        );
    }

    #[test]
    fn goals_are_met_or_missed() {
        let joins = [3, 9, 60].map(Duration::from_secs);
        let met = goals(&measured([1e8, 2e8, 3e8]), &pings(100, 105), &joins);
        assert_eq!(met.matches("| met |").count(), 7, "{met}");
        let late = [3, 11, 60].map(Duration::from_secs);
        let missed = goals(&measured([0.9e8, 1.8e8, 2.7e8]), &pings(100, 106), &late);
        assert_eq!(missed.matches("**missed**").count(), 7, "{missed}");
        assert_eq!(
            goals(&no_rates(), &no_latencies(), &[])
                .matches("**missed**")
                .count(),
            7
        );
    }

    /// By both families: two turns of nodes and of pods, the second twice as long as the first.
    fn pings(nodes: u64, pods: u64) -> Vec<ByWay<Latency>> {
        let turns = |ms: u64| {
            let latency = |ms| Latency {
                least: Duration::from_millis(ms),
                average: Duration::from_millis(ms),
                p50: Duration::from_millis(ms),
                p99: Duration::from_millis(10 * ms),
                lost: 1,
            };
            [ms, 2 * ms].map(latency).to_vec()
        };
        let mut all = no_latencies();
        for pings in &mut all {
            pings.underlay = turns(10);
            pings.nodes = turns(nodes);
            pings.pods = turns(pods);
        }
        all
    }

    #[test]
    fn a_latency_is_the_mean_of_all_turns() {
        let text = latencies(&pings(90, 100));
        let row = "| IPv6 | 15.000 ms | 135.000 ms | 150.000 ms | 0.900 ± 0.000 \
                   | 150.000 ms | 1350.000 ms | 1500.000 ms | 6 |";
        assert!(text.ends_with(row), "{text}");
    }
}
