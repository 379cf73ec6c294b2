//! `/debug/pprof`: CPU profiles of the daemon for `pprof`.
//!
//! Off by default and for local clients only: a profile shows internals and costs CPU time. One
//! profile at a time, of at most a minute.

// The profiler can unwind stacks on these architectures only.
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

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, Extension, Query, Request, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Deserialize;

use self::profiler::ProfilerError;
use super::routes::text_response;
use crate::connections;
use node_config::Monitoring;

type Client = connections::Client<SocketAddr>;

/// As in Go's net/http/pprof.
const DEFAULT_SECONDS: u64 = 30;
const MAX_SECONDS: u64 = 60;

/// Whether profiles are enabled, and whether one is being taken.
#[derive(Debug, Default)]
pub(super) struct Profiles {
    is_enabled: AtomicBool,
    running: tokio::sync::Mutex<()>,
}

impl Profiles {
    pub(super) fn new(monitoring: &Monitoring) -> Self {
        let profiles = Self::default();
        profiles.reload(monitoring);
        profiles
    }

    pub(super) fn reload(&self, monitoring: &Monitoring) {
        self.is_enabled.store(monitoring.pprof, Ordering::Relaxed);
    }
}

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
enum ProfileError {
    #[error("another profile is being taken")]
    Busy,
    #[error("seconds={0}: must be 1 to {MAX_SECONDS}")]
    InvalidLength(u64),
    #[error(transparent)]
    Profiler(#[from] ProfilerError),
}

impl IntoResponse for ProfileError {
    fn into_response(self) -> Response {
        let status = match &self {
            Self::Busy => StatusCode::CONFLICT,
            Self::InvalidLength(_) => StatusCode::BAD_REQUEST,
            Self::Profiler(error) => error.status(),
        };
        text_response(status, self)
    }
}

pub(super) fn router(profiles: Arc<Profiles>) -> Router {
    Router::new()
        .route("/debug/pprof", get(index))
        .route("/debug/pprof/", get(index))
        .route("/debug/pprof/profile", get(profile))
        .layer(middleware::from_fn_with_state(
            Arc::clone(&profiles),
            authorize,
        ))
        .with_state(profiles)
}

async fn authorize(
    State(profiles): State<Arc<Profiles>>,
    request: Request,
    next: Next,
) -> Response {
    let client = request.extensions().get::<ConnectInfo<Client>>();
    let is_local = client.is_some_and(|client| is_loopback(client.0.address));
    if !profiles.is_enabled.load(Ordering::Relaxed) {
        text_response(
            StatusCode::NOT_FOUND,
            "profiles are disabled: set monitoring.pprof and send SIGHUP",
        )
    } else if !is_local {
        text_response(
            StatusCode::FORBIDDEN,
            "profiles are served to 127.0.0.1 and ::1 only",
        )
    } else {
        next.run(request).await
    }
}

fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

async fn index() -> Response {
    text_response(
        StatusCode::OK,
        format_args!(
            "/debug/pprof/profile?seconds={DEFAULT_SECONDS} takes a CPU profile of at most \
             {MAX_SECONDS} seconds"
        ),
    )
}

#[derive(Debug, Deserialize)]
struct ProfileQuery {
    seconds: Option<u64>,
}

async fn profile(
    State(profiles): State<Arc<Profiles>>,
    Extension(ConnectInfo(client)): Extension<ConnectInfo<Client>>,
    Query(query): Query<ProfileQuery>,
) -> Result<Response, ProfileError> {
    let seconds = query.seconds.unwrap_or(DEFAULT_SECONDS);
    if !(1..=MAX_SECONDS).contains(&seconds) {
        return Err(ProfileError::InvalidLength(seconds));
    }
    let _running = profiles
        .running
        .try_lock()
        .map_err(|_| ProfileError::Busy)?;
    let length = Duration::from_secs(seconds);
    client.extend_deadline(length);
    let profile = profiler::cpu_profile(length).await?;
    let headers = [
        (CONTENT_TYPE, "application/octet-stream"),
        (CONTENT_DISPOSITION, "attachment; filename=\"profile\""),
    ];
    Ok((headers, profile).into_response())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("127.0.0.1:1", true)]
    #[case("127.8.8.8:1", true)]
    #[case("[::1]:1", true)]
    #[case("[::ffff:127.0.0.1]:1", true)]
    #[case("10.244.1.7:1", false)]
    #[case("[::ffff:10.244.1.7]:1", false)]
    #[case("[fe80::1]:1", false)]
    fn only_loopback_clients_are_local(#[case] address: SocketAddr, #[case] expected: bool) {
        assert_eq!(is_loopback(address), expected);
    }
}
