//! The measurements as Markdown, and the goals next to them.

use std::time::Duration;

use super::contestant::{By, Cell, Contestant};
use super::leases::Room;
use super::{MANY, Memory, NONE, Takeover, ample};
use crate::bench::call::Cost;
use crate::bench::table::{cpu, millis, ratio, wall};

const MAX_KIB: u64 = 8 * 1024;

type CostsOf = fn(&Contestant) -> &[Cost];
const VERBS: [(&str, CostsOf); 2] = [("ADD", |who| &who.add), ("DEL", |who| &who.del)];

fn find(all: &[Contestant], cell: Cell, by: By) -> Option<&Contestant> {
    all.iter().find(|who| who.cell == cell && who.by == by)
}

/// What calls cost one at a time.
pub(super) fn calls(all: &[Contestant]) -> String {
    let mut lines = vec![
        "\
Wall p50 and p99, CPU (user + system) p50; \"ratio\" is how many times faster than host-local the
p50 is. host-local has one strategy; the others are headcni-ipam's. The range is a /15, or in the
last rows 99 % leased.

| leases | by | calls | ADD p50 | p99 | CPU | ratio | DEL p50 | p99 | CPU | ratio |
|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
            .to_owned(),
    ];
    for who in all {
        let base = find(all, who.cell, By::HostLocal).unwrap_or(who);
        let columns = |costs: &[Cost], base: &[Cost]| {
            format!(
                "{} | {} | {} | {:.1}",
                millis(wall(costs, 50)),
                millis(wall(costs, 99)),
                millis(cpu(costs)),
                ratio(wall(base, 50), wall(costs, 50)),
            )
        };
        lines.push(format!(
            "| {}{} | {} | {} | {} | {} |",
            who.cell.leases,
            match who.cell.room {
                Room::Ample => "",
                Room::Scarce => ", 99 %",
            },
            who.by.name(),
            who.add.len(),
            columns(&who.add, &base.add),
            columns(&who.del, &base.del),
        ));
    }
    lines.join("\n")
}

/// The most memory that calls needed.
pub(super) fn memory(all: &[Memory], takeover: &Takeover) -> String {
    let mut lines = vec![
        "\
Peak memory (resident set):

| leases | by | ADD | DEL |
|--:|---|--:|--:|"
            .to_owned(),
    ];
    for of in all {
        let (name, leases) = (of.by.name(), of.leases);
        let (add, del) = (of.add_kib, of.del_kib);
        lines.push(format!("| {leases} | {name} | {add} KiB | {del} KiB |"));
    }
    let Takeover { wall, peak_kib } = takeover;
    lines.push(format!(
        "\nThe one ADD that takes over {MANY} leases of host-local: {}, {peak_kib} KiB.",
        millis(*wall)
    ));
    lines.join("\n")
}

/// The goals, and how we stand to them: by the strategy that does worst. CPU is told as well,
/// because a busy machine spoils it less.
pub(super) fn goals(all: &[Contestant], memory: &[Memory]) -> String {
    let mut lines = vec!["| goal | call | measured | |\n|---|---|--:|---|".to_owned()];
    let mut row = |goal: &str, verb: &str, measured: String, is_met: bool| {
        let verdict = if is_met { "met" } else { "**missed**" };
        lines.push(format!("| {goal} | {verb} | {measured} | {verdict} |"));
    };
    for (leases, wanted) in [(NONE, 4.0), (MANY, 100.0)] {
        for (verb, costs) in VERBS {
            let at = |by| find(all, ample(leases), by).map(costs).unwrap_or_default();
            let factor = |time: fn(&[Cost]) -> Duration| {
                let worst = ours().map(|by| time(at(by))).max().unwrap_or_default();
                ratio(time(at(By::HostLocal)), worst)
            };
            let (by_wall, by_cpu) = (factor(|costs| wall(costs, 50)), factor(cpu));
            let goal = format!("≥ {wanted} × as fast as host-local at {leases} leases");
            let measured = format!("{by_wall:.1} (CPU {by_cpu:.1})");
            row(&goal, verb, measured, by_wall >= wanted);
        }
    }
    for (verb, costs) in VERBS {
        let at = |leases, by| find(all, ample(leases), by).map(costs).unwrap_or_default();
        let growth = |time: fn(&[Cost]) -> Duration| {
            let of = |by| ratio(time(at(MANY, by)), time(at(NONE, by)));
            ours().map(of).fold(0.0, f64::max)
        };
        let (by_wall, by_cpu) = (growth(|costs| wall(costs, 50)), growth(cpu));
        let goal = format!("p50 at {MANY} leases ≤ 1.3 × that at {NONE}");
        let measured = format!("{by_wall:.2} (CPU {by_cpu:.2})");
        row(&goal, verb, measured, by_wall <= 1.3);
    }
    let ours = memory.iter().filter(|of| of.by != By::HostLocal);
    let (add, del) = ours.fold((0, 0), |(add, del), of| {
        (add.max(of.add_kib), del.max(of.del_kib))
    });
    for (verb, kib) in [("ADD", add), ("DEL", del)] {
        let goal = format!("peak memory ≤ {MAX_KIB} KiB");
        row(&goal, verb, format!("{kib} KiB"), kib <= MAX_KIB);
    }
    lines.join("\n")
}

fn ours() -> impl Iterator<Item = By> {
    By::ALL.into_iter().filter(|by| *by != By::HostLocal)
}
