//! Tables of the native datapath, and its goals.

use std::time::Duration;

use super::Measured;
use super::case::{Implementation, Network};
use crate::bench::burst::rate;
use crate::bench::call::Cost;
use crate::bench::table::{self, Goal, cpu, markdown, millis, percentile, ratio, wall};

fn find(all: &[Measured], network: Network, by: Implementation) -> Option<&Measured> {
    all.iter()
        .find(|case| case.network == network && case.by == by)
}

/// Calls one at a time.
pub(super) fn calls(all: &[Measured]) -> String {
    let rows = all.iter().map(|case| {
        // There is no floor with a hostPort: the one without stands in.
        let floor = find(all, case.network, Implementation::Floor)
            .or_else(|| find(all, Network::Ipv4, Implementation::Floor))
            .unwrap_or(case);
        let mut row = vec![case.network.name().to_owned(), case.by.name().to_owned()];
        row.extend(columns(&case.add, &floor.add));
        row.extend(columns(&case.del, &floor.del));
        row.push(case.system_calls.to_string());
        row
    });
    let head = "network | by | ADD p50 | p90 | min | CPU p50 | × floor | \
                DEL p50 | p90 | min | CPU p50 | × floor | system calls of ADD";
    markdown(2, head, rows)
}

fn columns(costs: &[Cost], floor: &[Cost]) -> [String; 5] {
    [
        millis(wall(costs, 50)),
        millis(wall(costs, 90)),
        millis(wall(costs, 0)),
        millis(cpu(costs, 50)),
        format!("{:.2}", ratio(wall(costs, 50), wall(floor, 50))),
    ]
}

pub(super) fn bursts(all: &[Measured]) -> String {
    let with_bursts = all.iter().filter(|case| !case.bursts.0.is_empty());
    let rows = with_bursts.map(|case| {
        let mut row = vec![case.by.name().to_owned()];
        for bursts in [&case.bursts.0, &case.bursts.1] {
            let calls: Vec<Duration> = bursts.iter().flat_map(|b| b.calls.clone()).collect();
            let cpu: Vec<Duration> = bursts.iter().map(|b| b.cpu).collect();
            row.extend([
                format!("{:.0}", rate(bursts)),
                millis(percentile(&calls, 50)),
                millis(percentile(&calls, 90)),
                millis(percentile(&cpu, 50)),
            ]);
        }
        row
    });
    let head = "by | ADD/s | ADD p50 | p90 | CPU per ADD | DEL/s | DEL p50 | p90 | CPU per DEL";
    markdown(1, head, rows)
}

pub(super) fn goals(all: &[Measured]) -> String {
    use Implementation::{Bridge, BridgePortmap, Floor, Headcni};
    use Network::{DualStack, HostPort, Ipv4};

    let times = |network, of, to, figure: fn(&Measured) -> f64| {
        let [of, to] = [of, to].map(|by| find(all, network, by).map(figure));
        Some(of? / to?)
    };
    let add = |case: &Measured| wall(&case.add, 50).as_secs_f64();
    let add_cpu = |case: &Measured| cpu(&case.add, 50).as_secs_f64();
    let del = |case: &Measured| wall(&case.del, 50).as_secs_f64();
    let add_rate = |case: &Measured| rate(&case.bursts.0);

    let mut goals = vec![];
    for network in [Ipv4, DualStack] {
        let name = network.name();
        let of_floor = |figure| times(network, Headcni, Floor, figure);
        goals.push(at_most(
            &format!("{name}: ADD p50, × floor"),
            1.5,
            of_floor(add),
        ));
        goals.push(at_most(
            &format!("{name}: ADD CPU, × floor"),
            2.0,
            of_floor(add_cpu),
        ));
        goals.push(at_most(
            &format!("{name}: DEL p50, × floor"),
            1.15,
            of_floor(del),
        ));
    }
    for (network, peer, limit) in [
        (Ipv4, Bridge, 5.0),
        (DualStack, Bridge, 6.0),
        (HostPort, BridgePortmap, 20.0),
    ] {
        let goal = format!(
            "{}: ADD, × as fast as the reference plugins",
            network.name()
        );
        goals.push(at_least(&goal, limit, times(network, peer, Headcni, add)));
    }
    let goal = "50 at once: ADDs per second, × bridge + host-local";
    goals.push(at_least(goal, 4.0, times(Ipv4, Headcni, Bridge, add_rate)));
    let calls = find(all, Ipv4, Headcni).and_then(|case| u32::try_from(case.system_calls).ok());
    goals.push(at_most(
        "IPv4: system calls of ADD",
        90.0,
        calls.map(f64::from),
    ));
    table::goals(goals)
}

fn at_most(goal: &str, limit: f64, measured: Option<f64>) -> Goal {
    let is_met = measured.map(|measured| measured <= limit);
    (format!("{goal} ≤ {limit}"), number(measured), is_met)
}

fn at_least(goal: &str, limit: f64, measured: Option<f64>) -> Goal {
    let is_met = measured.map(|measured| measured >= limit);
    (format!("{goal} ≥ {limit}"), number(measured), is_met)
}

fn number(measured: Option<f64>) -> String {
    measured.map_or("–".to_owned(), |measured| {
        let decimals = if measured < 10.0 { 2 } else { 0 };
        format!("{measured:.decimals$}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(network: Network, by: Implementation, millis: u64) -> Measured {
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
    fn a_goal_compares_with_the_floor_or_the_reference_plugins() {
        let all = [
            measured(Network::Ipv4, Implementation::Floor, 10),
            measured(Network::Ipv4, Implementation::Headcni, 13),
            measured(Network::Ipv4, Implementation::Bridge, 26),
        ];
        let text = goals(&all);
        for line in [
            "| IPv4: ADD p50, × floor ≤ 1.5 | 1.30 | met |",
            "| IPv4: DEL p50, × floor ≤ 1.15 | 1.30 | **missed** |",
            "| IPv4: ADD, × as fast as the reference plugins ≥ 5 | 2.00 | **missed** |",
            "| dual stack: ADD p50, × floor ≤ 1.5 | – | not measured |",
            "| IPv4: system calls of ADD ≤ 90 | 80 | met |",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
