//! A build without a profiler.

use std::time::Duration;

use axum::http::StatusCode;

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

#[expect(clippy::unused_async, reason = "the profiler's is asynchronous")]
pub(super) async fn cpu_profile(_: Duration) -> Result<Vec<u8>, ProfilerError> {
    Err(ProfilerError)
}
