//! Fifty calls at once on one store.

use std::time::Duration;

use anyhow::Result;

use super::contestant::{By, Contestant};
use super::leases::Room;
use crate::bench::burst::{AT_ONCE, Burst, burst, rate};
use crate::bench::sandbox::Pod;
use crate::bench::table::{millis, percentile};

/// Sizes of store at which host-local gets through a burst in reasonable time.
const LEASES: [u32; 2] = [0, 1_000];

/// As many calls as alone, in bursts; by host-local and by us in turn.
pub(super) fn measure(all: &[Contestant], pod: &Pod, iterations: usize) -> Result<String> {
    let rounds = iterations.div_ceil(AT_ONCE as usize);
    let mut lines = vec![format!(
        "{AT_ONCE} at once, {rounds} times:\n\n\
         | leases | call | by | calls/s | ratio | call p50 | p99 | CPU per call |\n\
         |--:|---|---|--:|--:|--:|--:|--:|"
    )];
    for leases in LEASES {
        let compared: Vec<&Contestant> = all
            .iter()
            .filter(|who| who.cell.leases == leases && who.cell.room == Room::Ample)
            .filter(|who| [By::HostLocal, By::Ours("sequential")].contains(&who.by))
            .collect();
        let mut bursts: Vec<[Vec<Burst>; 2]> = compared.iter().map(|_| [vec![], vec![]]).collect();
        for _ in 0..rounds {
            for (who, [add, del]) in compared.iter().zip(&mut bursts) {
                let call = |nth, verb| who.call(pod, &format!("burst-{nth}")).wall(verb);
                add.push(burst(|nth| call(nth, "ADD"))?);
                del.push(burst(|nth| call(nth, "DEL"))?);
            }
        }
        for (index, verb) in ["ADD", "DEL"].into_iter().enumerate() {
            let base = rate(&bursts[0][index]);
            for (who, bursts) in compared.iter().zip(&bursts) {
                let row = row(&bursts[index], base);
                let name = who.by.name();
                lines.push(format!("| {leases} | {verb} | {name} | {row} |"));
            }
        }
    }
    Ok(lines.join("\n"))
}

fn row(bursts: &[Burst], base: f64) -> String {
    let calls: Vec<Duration> = bursts.iter().flat_map(|b| b.calls.clone()).collect();
    let each: Vec<Duration> = bursts.iter().map(|b| b.cpu).collect();
    let rate = rate(bursts);
    format!(
        "{rate:.0} | {:.1} | {} | {} | {}",
        rate / base,
        millis(percentile(&calls, 50)),
        millis(percentile(&calls, 99)),
        millis(percentile(&each, 50)),
    )
}
