//! `/debug/pprof`: where the daemon's CPU time and memory go, for `pprof`.
//!
//! Off unless the configuration says so, and for this machine only: a profile shows internals and
//! costs CPU and memory. One CPU profile at a time, for a minute at the most. What is allocated is
//! sampled as long as profiles are on.

// The profiler reads stacks of these processors only; a build for another one has none.
#[cfg(all(
    feature = "profiling",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod profiler;
#[cfg(not(all(
    feature = "profiling",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
#[path = "profile/no_profiler.rs"]
mod profiler;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{Query, Request, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use serde::Deserialize;

use self::profiler::{ProfilerError, Sampling};
use super::client::Client;
use super::routes::say;
use node_config::Monitoring;

/// As Go's own servers have it.
const DEFAULT_SECONDS: u64 = 30;
const MAX_SECONDS: u64 = 60;

/// Whether profiles may be taken, and whether one is.
#[derive(Debug, Default)]
pub(super) struct Profiles {
    /// Profiles may be taken while this is there.
    sampling: Mutex<Option<Sampling>>,
    /// Whoever takes a CPU profile has it.
    running: tokio::sync::Mutex<()>,
    /// Whoever takes a heap profile has it.
    reading: tokio::sync::Mutex<()>,
}

impl Profiles {
    pub(super) fn new(monitoring: &Monitoring) -> Self {
        let profiles = Self::default();
        profiles.reload(monitoring);
        profiles
    }

    pub(super) fn reload(&self, monitoring: &Monitoring) {
        let mut sampling = self.sampling.lock().unwrap_or_else(PoisonError::into_inner);
        if !monitoring.pprof {
            *sampling = None;
        } else if sampling.is_none() {
            *sampling = Some(profiler::sample());
        }
    }

    fn are_allowed(&self) -> bool {
        let sampling = self.sampling.lock();
        sampling.unwrap_or_else(PoisonError::into_inner).is_some()
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
    Profiler(#[from] ProfilerError),
}

impl IntoResponse for ProfileError {
    fn into_response(self) -> Response {
        let status = match &self {
            Self::Busy => StatusCode::CONFLICT,
            Self::TooLong(_) => StatusCode::BAD_REQUEST,
            Self::Profiler(error) => error.status(),
        };
        say(status, self)
    }
}

pub(super) fn router(profiles: Arc<Profiles>) -> Router {
    Router::new()
        .route("/debug/pprof", get(index))
        .route("/debug/pprof/", get(index))
        .route("/debug/pprof/profile", get(profile))
        .route("/debug/pprof/heap", get(heap))
        .layer(middleware::from_fn_with_state(Arc::clone(&profiles), gate))
        .with_state(profiles)
}

/// Lets those pass who may see internals.
async fn gate(State(profiles): State<Arc<Profiles>>, request: Request, next: Next) -> Response {
    let is_local = request
        .extensions()
        .get::<Client>()
        .is_some_and(Client::is_local);
    if !profiles.are_allowed() {
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
             {MAX_SECONDS} seconds at the most\n\
             /debug/pprof/heap shows who allocated the memory that is in use"
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
    let profile = profiler::cpu_profile(length).await?;
    Ok(file("profile", profile))
}

async fn heap(State(profiles): State<Arc<Profiles>>) -> Result<Response, ProfileError> {
    // One after the other: each reads the names of all functions.
    let _reading = profiles.reading.lock().await;
    Ok(file("heap", profiler::heap_profile().await?))
}

fn file(name: &str, content: Vec<u8>) -> Response {
    let headers = [
        (CONTENT_TYPE, "application/octet-stream".to_owned()),
        (
            CONTENT_DISPOSITION,
            format!("attachment; filename=\"{name}\""),
        ),
    ];
    (headers, content).into_response()
}
