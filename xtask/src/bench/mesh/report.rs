//! Tables of the mesh, and its goals.

use std::time::Duration;

use lab::Latency;

use super::Rates;
use super::ratio::{Ratio, mean};
use super::samples::{Samples, numbers};
use super::two_nodes::Sent;
use crate::bench::table::{self, Goal, markdown, percentile};

/// Of pods to nodes.
const MIN_RATIO: f64 = 0.95;
const MAX_JOIN: Duration = Duration::from_secs(10);

/// TCP throughput, means of all samples.
pub(super) fn rates(all: &[Rates]) -> String {
    let rows = all.iter().map(|Rates { streams, sent }| {
        let [plain, nodes, pods] =
            [&sent.underlay, &sent.nodes, &sent.pods].map(|sent| numbers(sent, speed));
        vec![
            sent.family.name().to_owned(),
            streams.to_string(),
            megabits(&plain),
            megabits(&nodes),
            megabits(&pods),
            sent.pods_to_nodes(speed).to_string(),
            format!("{:.2}", mean(&pods) / mean(&plain)),
        ]
    });
    let head = "family | connections | no mesh | nodes | pods | pods / nodes | pods / no mesh";
    markdown(1, head, rows)
}

/// CPU seconds of both tailscaleds per gigabyte. They include most of the kernel's work for pods.
pub(super) fn costs(all: &[Rates]) -> String {
    let rows = all.iter().map(|Rates { streams, sent }| {
        let cost = |sent: &Sent| sent.cpu_per_gigabyte;
        vec![
            sent.family.name().to_owned(),
            streams.to_string(),
            format!("{:.2} s", mean(&numbers(&sent.nodes, cost))),
            format!("{:.2} s", mean(&numbers(&sent.pods, cost))),
            sent.nodes_to_pods(cost).to_string(),
        ]
    });
    let head = "tailscaled's CPU per GB | connections | nodes | pods | nodes / pods";
    markdown(1, head, rows)
}

/// Means over all samples of their p50 and p99.
pub(super) fn latencies(all: &[Samples<Latency>]) -> String {
    let rows = all.iter().map(|pings| {
        let samples = [&pings.underlay, &pings.nodes, &pings.pods];
        let means = |number: fn(&Latency) -> f64| {
            samples.map(|of| format!("{:.3} ms", mean(&numbers(of, number)) * 1000.0))
        };
        let lost = samples.into_iter().flatten().map(|ping| ping.lost);
        let mut row = vec![pings.family.name().to_owned()];
        row.extend(means(p50));
        row.push(pings.nodes_to_pods(p50).to_string());
        row.extend(means(|ping| ping.p99.as_secs_f64()));
        row.push(lost.sum::<usize>().to_string());
        row
    });
    let head =
        "ping | p50 no mesh | nodes | pods | nodes / pods | p99 no mesh | nodes | pods | lost";
    markdown(1, head, rows)
}

pub(super) fn joins(times: &[Duration]) -> String {
    let seconds = |time: &Duration| format!("{:.1} s", time.as_secs_f64());
    let all: Vec<String> = times.iter().map(seconds).collect();
    format!(
        "From a new node's daemon start until its pod CIDRs are served: {}.",
        all.join(", ")
    )
}

pub(super) fn goals(rates: &[Rates], pings: &[Samples<Latency>], joins: &[Duration]) -> String {
    // Without samples the ratio is not a number, and the goal is missed.
    let compare = |goal: String, ratio: Ratio| -> Goal {
        (goal, ratio.to_string(), Some(ratio.value >= MIN_RATIO))
    };
    let throughput = rates.iter().map(|Rates { streams, sent }| {
        let family = sent.family.name();
        let goal = format!("{family}, {streams} connections: pods / nodes ≥ {MIN_RATIO}");
        compare(goal, sent.pods_to_nodes(speed))
    });
    let latency = pings.iter().map(|pings| {
        let goal = format!("{}, ping: nodes / pods ≥ {MIN_RATIO}", pings.family.name());
        compare(goal, pings.nodes_to_pods(p50))
    });
    let join = percentile(joins, 50);
    let join = (
        format!("a new node is served within {} s", MAX_JOIN.as_secs()),
        format!("{:.1} s", join.as_secs_f64()),
        Some(!joins.is_empty() && join <= MAX_JOIN),
    );
    table::goals(throughput.chain(latency).chain([join]))
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
        let sent = |speeds: [f64; 3], cpu_per_gigabyte| {
            let sent = speeds.map(|bits_per_second| Sent {
                bits_per_second,
                cpu_per_gigabyte,
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
    fn endpoints_are_side_by_side() {
        let all = measured([1e8, 2e8, 3e8]);
        let table = rates(&all);
        let row = "| IPv4 | 1 | 2000 Mbit/s | 200 Mbit/s | 200 Mbit/s | 1.000 ± 0.000 | 0.10 |";
        assert!(table.contains(row), "{table}");
        let row = "| IPv6 | 4 | 6.00 s | 8.00 s | 0.750 ± 0.000 |\n";
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

    /// Two samples of nodes and of pods per family, the second twice as long as the first.
    fn pings(nodes: u64, pods: u64) -> Vec<Samples<Latency>> {
        let samples = |ms: u64| {
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
            pings.underlay = samples(10);
            pings.nodes = samples(nodes);
            pings.pods = samples(pods);
        }
        all
    }

    #[test]
    fn a_latency_is_the_mean_of_all_samples() {
        let text = latencies(&pings(90, 100));
        let row = "| IPv6 | 15.000 ms | 135.000 ms | 150.000 ms | 0.900 ± 0.000 \
                   | 150.000 ms | 1350.000 ms | 1500.000 ms | 6 |\n";
        assert!(text.ends_with(row), "{text}");
    }
}
