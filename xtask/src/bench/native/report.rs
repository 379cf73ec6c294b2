//! The measurements as Markdown, and the goals next to them.

use std::fs;
use std::thread::available_parallelism;
use std::time::Duration;

use anyhow::{Context, Result};

use super::Measured;
use super::contestant::{By, Network};
use crate::bench::burst::rate;
use crate::bench::call::Cost;
use crate::bench::table::{cpu, millis, percentile, ratio, wall};

/// What this was measured on.
pub(in crate::bench) fn machine() -> Result<String> {
    let release = "/proc/sys/kernel/osrelease";
    let kernel = fs::read_to_string(release).with_context(|| format!("read {release}"))?;
    let processors = available_parallelism().context("count the processors")?;
    Ok(format!("Linux {}, {processors} processors", kernel.trim()))
}

pub(super) fn find(all: &[Measured], network: Network, by: By) -> Option<&Measured> {
    all.iter()
        .find(|who| who.network == network && who.by == by)
}

/// What calls cost one at a time.
pub(super) fn calls(all: &[Measured]) -> String {
    let mut lines = vec![
        "\
Wall p50, p90 and the least; CPU (user + system, children included) p50; \"floors\" is the wall p50
as a multiple of the floor's. System calls are those of one ADD.

| network | by | ADD p50 | p90 | min | CPU | floors | DEL p50 | p90 | min | CPU | floors | system calls |
|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
            .to_owned(),
    ];
    for who in all {
        // There is no floor with a port: the one without stands in.
        let floor = find(all, who.network, By::Floor)
            .or_else(|| find(all, Network::Ipv4, By::Floor))
            .unwrap_or(who);
        lines.push(format!(
            "| {} | {} | {} | {} | {} |",
            who.network.name(),
            who.by.name(),
            columns(&who.add, &floor.add),
            columns(&who.del, &floor.del),
            who.system_calls,
        ));
    }
    lines.join("\n")
}

fn columns(costs: &[Cost], floor: &[Cost]) -> String {
    format!(
        "{} | {} | {} | {} | {:.2}",
        millis(wall(costs, 50)),
        millis(wall(costs, 90)),
        millis(wall(costs, 0)),
        millis(cpu(costs)),
        ratio(wall(costs, 50), wall(floor, 50)),
    )
}

/// What many calls at once cost.
pub(super) fn bursts(all: &[Measured]) -> String {
    let mut lines = vec![
        "\
| by | ADD/s | ADD p50 | p90 | CPU per ADD | DEL/s | DEL p50 | p90 | CPU per DEL |
|---|--:|--:|--:|--:|--:|--:|--:|--:|"
            .to_owned(),
    ];
    for who in all.iter().filter(|who| !who.bursts.0.is_empty()) {
        let columns = [&who.bursts.0, &who.bursts.1].map(|bursts| {
            let calls: Vec<Duration> = bursts.iter().flat_map(|b| b.calls.clone()).collect();
            let cpu: Vec<Duration> = bursts.iter().map(|b| b.cpu).collect();
            format!(
                "{:.0} | {} | {} | {}",
                rate(bursts),
                millis(percentile(&calls, 50)),
                millis(percentile(&calls, 90)),
                millis(percentile(&cpu, 50)),
            )
        });
        lines.push(format!("| {} | {} |", who.by.name(), columns.join(" | ")));
    }
    lines.join("\n")
}

/// The goals, and how we stand to them.
pub(super) fn goals(all: &[Measured]) -> String {
    let mut lines = vec!["| goal | measured | |\n|---|--:|---|".to_owned()];
    lines.extend(stand(all).iter().map(Goal::row));
    lines.join("\n")
}

enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

struct Goal {
    /// What comes before the bound, and what after it.
    text: (String, &'static str),
    bound: Bound,
    /// Nothing if one of the two wasn't there.
    measured: Option<f64>,
}

impl Goal {
    fn row(&self) -> String {
        let (sign, limit) = match self.bound {
            Bound::AtLeast(limit) => ("≥", limit),
            Bound::AtMost(limit) => ("≤", limit),
        };
        let measured = self.measured.map_or("–".to_owned(), |number| {
            let decimals = if number < 10.0 { 2 } else { 0 };
            format!("{number:.decimals$}")
        });
        let (before, after) = &self.text;
        let verdict = self.verdict();
        format!("| {before} {sign} {limit} {after} | {measured} | {verdict} |")
    }

    fn verdict(&self) -> &'static str {
        let is_met = match self.bound {
            Bound::AtLeast(limit) => self.measured.map(|number| number >= limit),
            Bound::AtMost(limit) => self.measured.map(|number| number <= limit),
        };
        match is_met {
            Some(true) => "met",
            Some(false) => "**missed**",
            None => "not measured",
        }
    }
}

fn stand(all: &[Measured]) -> Vec<Goal> {
    use Bound::{AtLeast, AtMost};
    use Network::{DualStack, HostPort, Ipv4};

    let goal = |text: (String, &'static str), bound, measured| Goal {
        text,
        bound,
        measured,
    };
    // How many times as much as the second the first one is, in a network.
    let times = |network, [of, to]: [By; 2], what: &dyn Fn(&Measured) -> f64| {
        let [of, to] = [of, to].map(|by| find(all, network, by).map(what));
        Some(of? / to?)
    };
    let add = |who: &Measured| wall(&who.add, 50).as_secs_f64();
    let add_cpu = |who: &Measured| cpu(&who.add).as_secs_f64();
    let del = |who: &Measured| wall(&who.del, 50).as_secs_f64();

    let mut goals = vec![];
    for network in [Ipv4, DualStack] {
        let ours = [By::Headcni, By::Floor];
        let text = |what: &str| (format!("{}: {what}", network.name()), "× the floor's");
        let mut row = |what, limit, measured| goals.push(goal(text(what), AtMost(limit), measured));
        row("ADD p50", 1.5, times(network, ours, &add));
        row("ADD CPU", 2.0, times(network, ours, &add_cpu));
        row("DEL p50", 1.15, times(network, ours, &del));
    }
    for (network, peer, limit) in [
        (Ipv4, By::Bridge, 5.0),
        (DualStack, By::Bridge, 6.0),
        (HostPort, By::BridgePortmap, 20.0),
    ] {
        let text = (
            format!("{}: ADD", network.name()),
            "× as fast as the reference plugins",
        );
        let measured = times(network, [peer, By::Headcni], &add);
        goals.push(goal(text, AtLeast(limit), measured));
    }
    let per_second = |who: &Measured| rate(&who.bursts.0);
    goals.push(goal(
        (
            "50 at once: ADDs per second".to_owned(),
            "× bridge + host-local",
        ),
        AtLeast(4.0),
        times(Ipv4, [By::Headcni, By::Bridge], &per_second),
    ));
    let calls = find(all, Ipv4, By::Headcni).and_then(|who| u32::try_from(who.system_calls).ok());
    goals.push(goal(
        ("IPv4:".to_owned(), "system calls per ADD"),
        AtMost(90.0),
        calls.map(f64::from),
    ));
    goals
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(network: Network, by: By, millis: u64) -> Measured {
        let time = Duration::from_millis(millis);
        let costs = vec![Cost {
            wall: time,
            cpu: time,
        }];
        Measured {
            network,
            by,
            add: costs.clone(),
            del: costs,
            system_calls: 80,
            bursts: (vec![], vec![]),
        }
    }

    #[test]
    fn a_goal_is_met_or_missed_or_not_measured() {
        let all = [
            measured(Network::Ipv4, By::Floor, 10),
            measured(Network::Ipv4, By::Headcni, 13),
            measured(Network::Ipv4, By::Bridge, 26),
        ];
        let text = goals(&all);
        for line in [
            "| IPv4: ADD p50 ≤ 1.5 × the floor's | 1.30 | met |",
            "| IPv4: DEL p50 ≤ 1.15 × the floor's | 1.30 | **missed** |",
            "| IPv4: ADD ≥ 5 × as fast as the reference plugins | 2.00 | **missed** |",
            "| dual stack: ADD p50 ≤ 1.5 × the floor's | – | not measured |",
            "| IPv4: ≤ 90 system calls per ADD | 80 | met |",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
