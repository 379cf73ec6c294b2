//! The measurements as Markdown, and the goals next to them.

use std::time::Duration;

use lab::Latency;

use super::ratio::{Ratio, mean};
use super::way::{Sent, Way};
use super::{Family, Latencies, Rates};
use crate::bench::table::{millis, percentile};

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
    for rates in all {
        let plain = speeds(&rates.underlay);
        let pods = speeds(&rates.pods);
        lines.push(format!(
            "| {} | {} | {} | {} | {} | {} | {:.2} |",
            rates.streams,
            rates.family.name(),
            megabits(&plain),
            megabits(&speeds(&rates.nodes)),
            megabits(&pods),
            by_pods(rates),
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
    for rates in all {
        let of = |sent: &[Sent]| sent.iter().map(|sent| sent.cost).collect::<Vec<f64>>();
        let (nodes, pods) = (of(&rates.nodes), of(&rates.pods));
        lines.push(format!(
            "| {} | {} | {:.2} s | {:.2} s | {} |",
            rates.streams,
            rates.family.name(),
            mean(&nodes),
            mean(&pods),
            Ratio::of_pairs(&nodes, &pods)
        ));
    }
    lines.join("\n")
}

/// How long packets take: of each round's median and 99th percentile, the median.
pub(super) fn latencies(all: &[Latencies]) -> String {
    let mut lines = vec!["| ping | family | p50 | p99 | lost |\n|---|---|--:|--:|--:|".to_owned()];
    for Latencies {
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
pub(super) fn goals(all: &[Rates], latencies: &[Latencies], joins: &[Duration]) -> String {
    let row = |goal: &str, measured: String, is_met: bool| {
        let verdict = if is_met { "met" } else { "**missed**" };
        format!("| {goal} | {measured} | {verdict} |")
    };
    let mut lines = vec!["| goal | measured | |\n|---|--:|---|".to_owned()];
    for rates in all {
        let ratio = by_pods(rates);
        let goal = format!(
            "pods / nodes ≥ {LEAST_RATIO}, {}, {} at once",
            rates.family.name(),
            rates.streams
        );
        lines.push(row(&goal, ratio.to_string(), ratio.value >= LEAST_RATIO));
    }
    for family in Family::ALL {
        let [nodes, pods] = [Way::Nodes, Way::Pods].map(|way| p50(latencies, way, family));
        let ratio = nodes.as_secs_f64() / pods.as_secs_f64();
        let goal = format!("ping, nodes / pods ≥ {LEAST_RATIO}, {}", family.name());
        // Without pings it is no number, and not met.
        lines.push(row(&goal, format!("{ratio:.2}"), ratio >= LEAST_RATIO));
    }
    let join = percentile(joins, 50);
    lines.push(row(
        &format!("a node serves within {} s", LONGEST_JOIN.as_secs()),
        format!("{:.1} s", join.as_secs_f64()),
        !joins.is_empty() && join <= LONGEST_JOIN,
    ));
    lines.join("\n")
}

/// Of each round's median, the median.
fn p50(all: &[Latencies], way: Way, family: Family) -> Duration {
    let wanted = all.iter().filter(|it| (it.way, it.family) == (way, family));
    let rounds = wanted.flat_map(|it| &it.rounds);
    let times: Vec<Duration> = rounds.map(|latency| latency.p50).collect();
    percentile(&times, 50)
}

/// What pods have of what nodes have.
fn by_pods(rates: &Rates) -> Ratio {
    Ratio::of_pairs(&speeds(&rates.pods), &speeds(&rates.nodes))
}

fn speeds(sent: &[Sent]) -> Vec<f64> {
    sent.iter().map(|sent| sent.bits_per_second).collect()
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
            rates.underlay = sent([1e9, 2e9, 3e9], 0.0);
            rates.nodes = sent([1e8, 2e8, 3e8], 6.0);
            rates.pods = sent(pods, 8.0);
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
        assert_eq!(goals(&[], &[], &[]).matches("**missed**").count(), 3);
    }

    fn latency(ms: u64) -> Latency {
        Latency {
            least: Duration::from_millis(ms),
            average: Duration::from_millis(ms),
            p50: Duration::from_millis(ms),
            p99: Duration::from_millis(10 * ms),
            lost: 1,
        }
    }

    /// By both families, for nodes and for pods.
    fn pings(nodes: u64, pods: u64) -> Vec<Latencies> {
        let mut all = no_latencies();
        for series in &mut all {
            let ms = if series.way == Way::Pods { pods } else { nodes };
            series.rounds.push(latency(ms));
        }
        all
    }

    #[test]
    fn a_latency_is_the_median_of_the_rounds() {
        let series = Latencies {
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
