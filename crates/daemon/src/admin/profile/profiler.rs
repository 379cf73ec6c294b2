//! Takes CPU profiles: SIGPROF for every hundredth second of CPU time, whose handler unwinds the
//! stack.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use pprof::protos::Message;
use pprof::{ProfilerGuard, ProfilerGuardBuilder};
use rustix::time::{ClockId, clock_gettime};
use tokio::task::spawn_blocking;

/// Samples per second of CPU time. Not 100, which would sample in step with the kernel's tick.
const HERTZ: i32 = 99;

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProfilerError {
    #[error("this headcni-daemon was stripped of its symbols, so a profile can't name functions")]
    NoSymbols,
    #[error("take a profile: {0}")]
    Failed(String),
}

impl ProfilerError {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::NoSymbols => StatusCode::NOT_IMPLEMENTED,
            Self::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

fn failed(error: impl std::fmt::Display) -> ProfilerError {
    ProfilerError::Failed(error.to_string())
}

/// Profiles the process for this long. Returns a file for `pprof`.
pub(super) async fn cpu_profile(length: Duration) -> Result<Vec<u8>, ProfilerError> {
    prepare_unwinder()?;
    let guard = spawn_blocking(|| start(HERTZ)).await.map_err(failed)??;
    tokio::time::sleep(length).await;
    spawn_blocking(move || report(&guard))
        .await
        .map_err(failed)?
}

fn start(hertz: i32) -> Result<ProfilerGuard<'static>, ProfilerError> {
    ProfilerGuardBuilder::default()
        .frequency(hertz)
        .build()
        .map_err(failed)
}

/// Takes the first samples while no thread allocates.
///
/// The signal handler creates its unwinder on first use, which allocates: if that signal interrupted
/// the allocator, it would deadlock. So the runtime's thread spins during the first samples.
fn prepare_unwinder() -> Result<(), ProfilerError> {
    static IS_READY: AtomicBool = AtomicBool::new(false);
    const CPU_TIME: Duration = Duration::from_millis(30);
    const TIMEOUT: Duration = Duration::from_millis(300);
    if IS_READY.load(Ordering::Relaxed) {
        return Ok(());
    }
    let guard = start(1000)?;
    let used = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default();
    let (begin, started) = (used(), Instant::now());
    while used() < begin + CPU_TIME && started.elapsed() < TIMEOUT {}
    drop(guard);
    IS_READY.store(true, Ordering::Relaxed);
    Ok(())
}

fn report(guard: &ProfilerGuard<'static>) -> Result<Vec<u8>, ProfilerError> {
    let report = guard.report().build().map_err(failed);
    // Otherwise megabytes of symbols stay in memory.
    backtrace::clear_symbol_cache();
    let report = report?;
    let has_no_names = report.data.keys().all(|stack| stack.frames.is_empty());
    if !report.data.is_empty() && has_no_names {
        return Err(ProfilerError::NoSymbols);
    }
    Ok(report.pprof().map_err(failed)?.encode_to_vec())
}
