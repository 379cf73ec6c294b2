//! `/debug/pprof`: where the daemon's CPU time goes, for `pprof`.
//!
//! Off unless the configuration says so, and for this machine only: a profile shows internals and
//! costs CPU and memory. One at a time, for a minute at the most.

// The profiler reads stacks of these processors only; a build for another one has none.
#[cfg(all(
    feature = "profiling",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod cpu;
#[cfg(not(all(
    feature = "profiling",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
#[path = "profile/no_cpu.rs"]
mod cpu;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::extract::{Query, Request, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use serde::Deserialize;
use tokio::sync::Mutex;

use super::client::Client;
use super::routes::say;
use crate::config::Monitoring;

/// As Go's own servers have it.
const DEFAULT_SECONDS: u64 = 30;
const MAX_SECONDS: u64 = 60;

/// Whether profiles may be taken, and whether one is.
#[derive(Debug)]
pub(super) struct Profiles {
    are_allowed: AtomicBool,
    running: Mutex<()>,
}

impl Profiles {
    pub(super) fn new(monitoring: &Monitoring) -> Self {
        Self {
            are_allowed: AtomicBool::new(monitoring.pprof),
            running: Mutex::new(()),
        }
    }

    pub(super) fn reload(&self, monitoring: &Monitoring) {
        self.are_allowed.store(monitoring.pprof, Ordering::Relaxed);
    }
}

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
enum ProfileError {
    #[error("a profile is being taken: one at a time")]
    Busy,
    #[error("seconds={0}: a profile takes 1 to {MAX_SECONDS} seconds")]
    TooLong(u64),
    #[error(transparent)]
    Cpu(#[from] cpu::CpuError),
    #[error(
        "headcni-daemon takes no heap profiles: /metrics has process_resident_memory_bytes, and \
         docs/monitoring.md says how to look closer"
    )]
    NoHeap,
}

impl IntoResponse for ProfileError {
    fn into_response(self) -> Response {
        let status = match &self {
            Self::Busy => StatusCode::CONFLICT,
            Self::TooLong(_) => StatusCode::BAD_REQUEST,
            Self::Cpu(error) => error.status(),
            Self::NoHeap => StatusCode::NOT_IMPLEMENTED,
        };
        say(status, self)
    }
}

pub(super) fn router(profiles: Arc<Profiles>) -> Router {
    Router::new()
        .route("/debug/pprof", get(index))
        .route("/debug/pprof/", get(index))
        .route("/debug/pprof/profile", get(profile))
        .route("/debug/pprof/heap", get(async || ProfileError::NoHeap))
        .layer(middleware::from_fn_with_state(Arc::clone(&profiles), gate))
        .with_state(profiles)
}

/// Lets those pass who may see internals.
async fn gate(State(profiles): State<Arc<Profiles>>, request: Request, next: Next) -> Response {
    let is_local = request
        .extensions()
        .get::<Client>()
        .is_some_and(Client::is_local);
    if !profiles.are_allowed.load(Ordering::Relaxed) {
        say(
            StatusCode::NOT_FOUND,
            "profiles are off: monitoring.pprof switches them on, and SIGHUP makes it known",
        )
    } else if !is_local {
        say(
            StatusCode::FORBIDDEN,
            "profiles are for this machine: ask from 127.0.0.1 or ::1",
        )
    } else {
        next.run(request).await
    }
}

async fn index() -> Response {
    say(
        StatusCode::OK,
        format_args!(
            "/debug/pprof/profile?seconds={DEFAULT_SECONDS} takes a CPU profile, for \
             {MAX_SECONDS} seconds at the most"
        ),
    )
}

#[derive(Debug, Deserialize)]
struct Wanted {
    seconds: Option<u64>,
}

async fn profile(
    State(profiles): State<Arc<Profiles>>,
    Extension(client): Extension<Client>,
    Query(wanted): Query<Wanted>,
) -> Result<Response, ProfileError> {
    let seconds = wanted.seconds.unwrap_or(DEFAULT_SECONDS);
    if !(1..=MAX_SECONDS).contains(&seconds) {
        return Err(ProfileError::TooLong(seconds));
    }
    let _running = profiles
        .running
        .try_lock()
        .map_err(|_| ProfileError::Busy)?;
    let length = Duration::from_secs(seconds);
    client.wait_for(length);
    let profile = cpu::profile(length).await?;
    let headers = [
        (CONTENT_TYPE, "application/octet-stream"),
        (CONTENT_DISPOSITION, "attachment; filename=\"profile\""),
    ];
    Ok((headers, profile).into_response())
}
