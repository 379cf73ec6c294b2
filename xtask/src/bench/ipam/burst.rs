//! Many calls at once, as when a node comes back and all its pods start.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};

use super::contestant::{By, Contestant};
use super::leases::Room;
use crate::bench::call::cpu_of_children;
use crate::bench::sandbox::Pod;
use crate::bench::table::{millis, percentile};

const AT_ONCE: u32 = 50;

/// Sizes of store at which host-local gets through a burst in reasonable time.
const LEASES: [u32; 2] = [0, 1_000];

/// What a burst took.
struct Burst {
    /// From the first start to the last end.
    wall: Duration,
    /// All calls together.
    cpu: Duration,
    /// Each call.
    calls: Vec<Duration>,
}

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
                add.push(burst(who, pod, "ADD")?);
                del.push(burst(who, pod, "DEL")?);
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

fn burst(who: &Contestant, pod: &Pod, verb: &str) -> Result<Burst> {
    let ready = Barrier::new(AT_ONCE as usize);
    let used = cpu_of_children()?;
    let spans = thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE)
            .map(|nth| {
                let ready = &ready;
                scope.spawn(move || {
                    let container = format!("burst-{nth}");
                    ready.wait();
                    let start = Instant::now();
                    let wall = who.call(pod, &container).wall(verb)?;
                    anyhow::Ok((start, Instant::now(), wall))
                })
            })
            .collect();
        let joined = threads.into_iter().map(|thread| {
            thread
                .join()
                .map_err(|_| anyhow!("a calling thread panicked"))?
        });
        joined.collect::<Result<Vec<_>>>()
    })?;
    let cpu = cpu_of_children()?.saturating_sub(used);
    // By the callers' own clocks: whoever waits for them may wake up late.
    let first = spans.iter().map(|(start, _, _)| *start).min();
    let last = spans.iter().map(|(_, end, _)| *end).max();
    let (Some(first), Some(last)) = (first, last) else {
        bail!("a burst of no calls");
    };
    Ok(Burst {
        wall: last - first,
        cpu,
        calls: spans.into_iter().map(|(_, _, wall)| wall).collect(),
    })
}

/// Calls per second of the median burst.
fn rate(bursts: &[Burst]) -> f64 {
    let walls: Vec<Duration> = bursts.iter().map(|burst| burst.wall).collect();
    f64::from(AT_ONCE) / percentile(&walls, 50).as_secs_f64()
}

fn row(bursts: &[Burst], base: f64) -> String {
    let calls: Vec<Duration> = bursts.iter().flat_map(|b| b.calls.clone()).collect();
    let each: Vec<Duration> = bursts.iter().map(|b| b.cpu / AT_ONCE).collect();
    let rate = rate(bursts);
    format!(
        "{rate:.0} | {:.1} | {} | {} | {}",
        rate / base,
        millis(percentile(&calls, 50)),
        millis(percentile(&calls, 99)),
        millis(percentile(&each, 50)),
    )
}
