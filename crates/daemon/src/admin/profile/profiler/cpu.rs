//! CPU profiles: a signal for every hundredth second of CPU time, whose handler notes the stack.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pprof::protos::Message;
use pprof::{ProfilerGuard, ProfilerGuardBuilder};
use rustix::time::{ClockId, clock_gettime};
use tokio::task::spawn_blocking;

use super::{ProfilerError, trouble};

/// Samples per second of CPU time. Not 100, or whatever happens with every tick looks too large.
const HERTZ: i32 = 99;

/// Samples what the process does for so long; the answer is what `pprof` reads.
pub(in super::super) async fn profile(length: Duration) -> Result<Vec<u8>, ProfilerError> {
    prepare_unwinder()?;
    let guard = spawn_blocking(|| start(HERTZ)).await.map_err(trouble)??;
    tokio::time::sleep(length).await;
    spawn_blocking(move || heap::unseen(|| report(&guard)))
        .await
        .map_err(trouble)?
}

fn start(hertz: i32) -> Result<ProfilerGuard<'static>, ProfilerError> {
    ProfilerGuardBuilder::default()
        .frequency(hertz)
        .build()
        .map_err(trouble)
}

/// Lets the first signal of this process come while nobody allocates.
///
/// The handler makes its unwinder when it is first needed, and that allocates. A signal that
/// interrupts the allocator would then wait for it for ever. So the first signals are sent to a
/// thread that only counts; this is the runtime's own, so that it does nothing else meanwhile.
fn prepare_unwinder() -> Result<(), ProfilerError> {
    static IS_READY: AtomicBool = AtomicBool::new(false);
    const CPU_TIME: Duration = Duration::from_millis(30);
    const PATIENCE: Duration = Duration::from_millis(300);
    if IS_READY.load(Ordering::Relaxed) {
        return Ok(());
    }
    let guard = start(1000)?;
    let used = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default();
    let (begin, started) = (used(), Instant::now());
    while used() < begin + CPU_TIME && started.elapsed() < PATIENCE {}
    drop(guard);
    IS_READY.store(true, Ordering::Relaxed);
    Ok(())
}

fn report(guard: &ProfilerGuard<'static>) -> Result<Vec<u8>, ProfilerError> {
    let report = guard.report().build().map_err(trouble);
    // Names were read from the program's file; megabytes of them are kept otherwise.
    backtrace::clear_symbol_cache();
    let report = report?;
    let has_no_names = report.data.keys().all(|stack| stack.frames.is_empty());
    if !report.data.is_empty() && has_no_names {
        return Err(ProfilerError::NoSymbols);
    }
    Ok(report.pprof().map_err(trouble)?.encode_to_vec())
}
