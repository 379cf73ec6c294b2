//! Many calls at once, as after a node's boot.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};

use super::call::cpu_of_children;
use super::table::percentile;

pub(super) const AT_ONCE: u32 = 50;

pub(super) struct Burst {
    /// From the first start to the last end.
    wall: Duration,
    /// Per call.
    pub(super) cpu: Duration,
    /// Each call.
    pub(super) calls: Vec<Duration>,
}

/// Makes all calls at once. `call` makes the nth and returns its wall time.
pub(super) fn burst(call: impl Fn(u32) -> Result<Duration> + Sync) -> Result<Burst> {
    let ready = Barrier::new(AT_ONCE as usize);
    let used = cpu_of_children()?;
    let spans = thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE)
            .map(|nth| {
                let (ready, call) = (&ready, &call);
                scope.spawn(move || {
                    ready.wait();
                    let start = Instant::now();
                    let wall = call(nth)?;
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
    let cpu = cpu_of_children()?.saturating_sub(used) / AT_ONCE;
    // Timestamps of the calling threads: this thread may wake up late.
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
pub(super) fn rate(bursts: &[Burst]) -> f64 {
    let walls: Vec<Duration> = bursts.iter().map(|burst| burst.wall).collect();
    f64::from(AT_ONCE) / percentile(&walls, 50).as_secs_f64()
}
