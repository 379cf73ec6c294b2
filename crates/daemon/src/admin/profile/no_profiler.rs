//! A build without a profiler.

use std::time::Duration;

use axum::http::StatusCode;

/// What there is to say.
#[derive(Debug, thiserror::Error)]
#[error(
    "this headcni-daemon was built without a profiler: build it for x86_64 or aarch64 with the \
     feature \"profiling\""
)]
pub(super) struct ProfilerError;

impl ProfilerError {
    #[expect(clippy::unused_self, reason = "the profiler's errors differ")]
    pub(super) fn status(&self) -> StatusCode {
        StatusCode::NOT_IMPLEMENTED
    }
}

/// Nothing is sampled.
#[derive(Debug)]
pub(super) struct Sampling;

/// Does nothing.
pub(super) fn sample() -> Sampling {
    Sampling
}

/// Says so.
#[expect(clippy::unused_async, reason = "the profiler's has to wait")]
pub(super) async fn cpu_profile(_: Duration) -> Result<Vec<u8>, ProfilerError> {
    Err(ProfilerError)
}

/// Says so.
#[expect(clippy::unused_async, reason = "the profiler's has to wait")]
pub(super) async fn heap_profile() -> Result<Vec<u8>, ProfilerError> {
    Err(ProfilerError)
}
