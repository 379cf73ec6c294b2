//! A call that failed.

use super::problem::Problem;

/// What was tried, where, and what went wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{operation} at {server}: {problem}")]
pub struct Error {
    pub(super) operation: &'static str,
    pub(super) server: String,
    pub(super) problem: Problem,
}

impl Error {
    /// What went wrong.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// Whether the same call may succeed later though nobody mends anything here.
    pub fn is_transient(&self) -> bool {
        self.problem.is_transient()
    }

    /// Whether what the call was about does not exist (any more).
    pub fn is_not_found(&self) -> bool {
        matches!(self.problem, Problem::NotFound { .. })
    }
}
