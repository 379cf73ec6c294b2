//! Fifty calls at once on one store.

use std::time::Duration;

use anyhow::Result;

use super::case::{Allocator, StoreCase};
use super::leases::Range;
use crate::bench::burst::{AT_ONCE, Burst, burst, rate};
use crate::bench::sandbox::Pod;
use crate::bench::table::{markdown, millis, percentile};

/// With more leases, a burst of host-local takes too long.
const LEASES: [u32; 2] = [0, 1_000];

/// As many calls as alone, in bursts that alternate between host-local and us.
pub(super) fn measure(all: &[StoreCase], pod: &Pod, iterations: usize) -> Result<String> {
    let rounds = iterations.div_ceil(AT_ONCE as usize);
    let mut rows = Vec::new();
    for leases in LEASES {
        let compared: Vec<&StoreCase> = all
            .iter()
            .filter(|case| case.store.leases == leases && case.store.range == Range::Large)
            .filter(|case| {
                [Allocator::HostLocal, Allocator::Headcni("sequential")].contains(&case.by)
            })
            .collect();
        let mut bursts: Vec<[Vec<Burst>; 2]> = compared.iter().map(|_| [vec![], vec![]]).collect();
        for _ in 0..rounds {
            for (case, [add, del]) in compared.iter().zip(&mut bursts) {
                let call = |nth, verb| case.call(pod, &format!("burst-{nth}")).wall(verb);
                add.push(burst(|nth| call(nth, "ADD"))?);
                del.push(burst(|nth| call(nth, "DEL"))?);
            }
        }
        for (index, verb) in ["ADD", "DEL"].into_iter().enumerate() {
            let base = rate(&bursts[0][index]);
            for (case, bursts) in compared.iter().zip(&bursts) {
                let names = [
                    verb.to_owned(),
                    case.by.name().to_owned(),
                    leases.to_string(),
                ];
                rows.push(
                    names
                        .into_iter()
                        .chain(columns(&bursts[index], base))
                        .collect(),
                );
            }
        }
    }
    let head = "call | by | leases | calls/s | ratio | call p50 | p99 | CPU per call";
    let table = markdown(2, head, rows);
    Ok(format!("{AT_ONCE} at once, {rounds} times:\n\n{table}"))
}

fn columns(bursts: &[Burst], base: f64) -> [String; 5] {
    let calls: Vec<Duration> = bursts.iter().flat_map(|b| b.calls.clone()).collect();
    let each: Vec<Duration> = bursts.iter().map(|b| b.cpu).collect();
    let rate = rate(bursts);
    [
        format!("{rate:.0}"),
        format!("{:.1}", rate / base),
        millis(percentile(&calls, 50)),
        millis(percentile(&calls, 99)),
        millis(percentile(&each, 50)),
    ]
}
