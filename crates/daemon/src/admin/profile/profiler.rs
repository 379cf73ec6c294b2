//! What takes profiles.

mod cpu;
mod heap;
mod pprof_file;

use axum::http::StatusCode;

pub(super) use cpu::profile as cpu_profile;
pub(super) use heap::{Sampling, profile as heap_profile, sample};

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProfilerError {
    #[error("this headcni-daemon was stripped of its symbols, so a profile could name no function")]
    NoSymbols,
    #[error("take a profile: {0}")]
    Profiler(String),
}

impl ProfilerError {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::NoSymbols => StatusCode::NOT_IMPLEMENTED,
            Self::Profiler(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

fn trouble(error: impl std::fmt::Display) -> ProfilerError {
    ProfilerError::Profiler(error.to_string())
}
