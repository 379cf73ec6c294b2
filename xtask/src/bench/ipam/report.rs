//! Tables of headcni-ipam against host-local, and its goals.

use std::time::Duration;

use super::case::{Allocator, LeaseStore, StoreCase};
use super::leases::Range;
use super::{MANY, Memory, Migration, NONE, large};
use crate::bench::call::Cost;
use crate::bench::table::{self, cpu, markdown, millis, ratio, wall};

const MAX_KIB: u64 = 8 * 1024;

type CostsOf = fn(&StoreCase) -> &[Cost];
const VERBS: [(&str, CostsOf); 2] = [("ADD", |case| &case.add), ("DEL", |case| &case.del)];

fn find(all: &[StoreCase], store: LeaseStore, by: Allocator) -> Option<&StoreCase> {
    all.iter().find(|case| case.store == store && case.by == by)
}

/// Calls one at a time. The ratio is host-local's wall p50 by ours.
pub(super) fn calls(all: &[StoreCase]) -> String {
    let rows = all.iter().map(|case| {
        let base = find(all, case.store, Allocator::HostLocal).unwrap_or(case);
        let columns = |costs: &[Cost], base: &[Cost]| {
            [
                millis(wall(costs, 50)),
                millis(wall(costs, 99)),
                millis(cpu(costs, 50)),
                format!("{:.1}", ratio(wall(base, 50), wall(costs, 50))),
            ]
        };
        let range = match case.store.range {
            Range::Large => "/15",
            Range::NearlyFull => "99 % leased",
        };
        let mut row = vec![range.to_owned(), case.by.name().to_owned()];
        row.extend([case.store.leases.to_string(), case.add.len().to_string()]);
        row.extend(columns(&case.add, &base.add));
        row.extend(columns(&case.del, &base.del));
        row
    });
    let head = "range | by | leases | calls | ADD p50 | p99 | CPU p50 | ratio | \
                DEL p50 | p99 | CPU p50 | ratio";
    markdown(2, head, rows)
}

pub(super) fn memory(all: &[Memory], migration: &Migration) -> String {
    let rows = all.iter().map(|of| {
        let (add, del) = (format!("{} KiB", of.add_kib), format!("{} KiB", of.del_kib));
        vec![of.by.name().to_owned(), of.leases.to_string(), add, del]
    });
    let table = markdown(1, "peak RSS | leases | ADD | DEL", rows);
    let Migration { wall, peak_kib } = migration;
    let wall = millis(*wall);
    format!("{table}\nThe ADD that converts {MANY} leases of host-local: {wall}, {peak_kib} KiB.")
}

/// The slowest strategy counts. CPU is shown too, because a busy machine disturbs it less.
pub(super) fn goals(all: &[StoreCase], memory: &[Memory]) -> String {
    let mut goals = Vec::new();
    for (leases, limit) in [(NONE, 4.0), (MANY, 100.0)] {
        for (verb, costs) in VERBS {
            let at = |by| find(all, large(leases), by).map(costs).unwrap_or_default();
            let factor = |time: fn(&[Cost], usize) -> Duration| {
                let slowest = headcni()
                    .map(|by| time(at(by), 50))
                    .max()
                    .unwrap_or_default();
                ratio(time(at(Allocator::HostLocal), 50), slowest)
            };
            let (by_wall, by_cpu) = (factor(wall), factor(cpu));
            goals.push((
                format!("{verb} ≥ {limit} × as fast as host-local at {leases} leases"),
                format!("{by_wall:.1} (CPU {by_cpu:.1})"),
                Some(by_wall >= limit),
            ));
        }
    }
    for (verb, costs) in VERBS {
        let at = |leases, by| find(all, large(leases), by).map(costs).unwrap_or_default();
        let growth = |time: fn(&[Cost], usize) -> Duration| {
            let of = |by| ratio(time(at(MANY, by), 50), time(at(NONE, by), 50));
            headcni().map(of).fold(0.0, f64::max)
        };
        let (by_wall, by_cpu) = (growth(wall), growth(cpu));
        goals.push((
            format!("{verb} p50 at {MANY} leases ≤ 1.3 × that at {NONE}"),
            format!("{by_wall:.2} (CPU {by_cpu:.2})"),
            Some(by_wall <= 1.3),
        ));
    }
    let ours = memory.iter().filter(|of| of.by != Allocator::HostLocal);
    let (add, del) = ours.fold((0, 0), |(add, del), of| {
        (add.max(of.add_kib), del.max(of.del_kib))
    });
    for (verb, kib) in [("ADD", add), ("DEL", del)] {
        let goal = format!("peak RSS of {verb} ≤ {MAX_KIB} KiB");
        goals.push((goal, format!("{kib} KiB"), Some(kib <= MAX_KIB)));
    }
    table::goals(goals)
}

fn headcni() -> impl Iterator<Item = Allocator> {
    let all = Allocator::ALL.into_iter();
    all.filter(|by| *by != Allocator::HostLocal)
}
