//! The daemon's API: HTTP/1.1 over a Unix socket, for the plugin and for `headcnictl` or `curl`.
//!
//! Only root and the daemon's own user are served. Connections, requests and time are bounded, so
//! no client can block an event of the plugin.

mod event_metrics;
mod listener;
mod queries;
mod routes;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::event::Event;
use api::messages::MAX_EVENT_BYTES;
use api::paths;
use rustix::process::geteuid;
use tokio::net::UnixStream;
use tokio::sync::{Notify, mpsc};
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

use crate::connections::{self, ConnectionLimits};
use listener::{ApiListener, SocketFile};
use node_core::conditions::{Condition, Conditions};
use node_core::error::display_chain;
use node_core::metrics::Metrics;

pub use event_metrics::{ERROR_TYPES, PodLabelMode, STEPS, STRATEGIES, count};
pub use listener::SocketError;
pub use queries::{Queries, QueryError};

/// Connections that are served at a time.
pub const MAX_CONNECTIONS: usize = 64;
/// How long a client may take to send a request.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

const LIMITS: ConnectionLimits = ConnectionLimits {
    connections: MAX_CONNECTIONS,
    header: HEADER_TIMEOUT,
    response: Duration::from_secs(10),
    request_bytes: MAX_EVENT_BYTES + 16 * 1024,
    shutdown: Duration::from_millis(500),
};

/// Where the API is served.
#[derive(Clone, Debug)]
pub struct ApiSettings {
    /// The path of the socket.
    pub path: PathBuf,
    /// How often the socket file is checked: if it was removed, it is created again.
    pub check_interval: Duration,
}

impl Default for ApiSettings {
    fn default() -> Self {
        Self {
            path: paths::DAEMON_SOCKET.into(),
            check_interval: Duration::from_secs(10),
        }
    }
}

/// What the API works on.
#[derive(Clone)]
pub struct ApiContext {
    /// Receives the plugin's events.
    pub events: mpsc::Sender<Box<Event>>,
    /// Notified when an event may have been lost: the pods must be listed again.
    pub events_lost: Arc<Notify>,
    /// Answers GET requests.
    pub queries: Queries,
    /// Counts requests.
    pub metrics: Arc<Metrics>,
    /// Reports `SocketOpen`.
    pub conditions: Arc<Conditions>,
}

/// Serves the API until `shutdown`.
pub async fn run(settings: ApiSettings, context: ApiContext, shutdown: CancellationToken) {
    shutdown
        .run_until_cancelled(keep_open(&settings, &context, &shutdown))
        .await;
}

async fn keep_open(settings: &ApiSettings, context: &ApiContext, shutdown: &CancellationToken) {
    let conditions = &context.conditions;
    loop {
        match open(settings, context).await {
            Ok((listener, file)) => {
                conditions.holds(Condition::SocketOpen, listener.message());
                let stop = shutdown.child_token();
                let app = routes::router(context.clone());
                tokio::select! {
                    () = connections::serve(listener, is_trusted, app, LIMITS, stop.clone()) => {}
                    () = replaced(&file, settings.check_interval) => {}
                }
                stop.cancel();
                tracing::warn!(path = %settings.path.display(), "socket was removed, opening it again");
                context.events_lost.notify_one();
            }
            Err(error) => conditions.fails(Condition::SocketOpen, error),
        }
        sleep(settings.check_interval / 10).await;
    }
}

async fn open(
    settings: &ApiSettings,
    context: &ApiContext,
) -> Result<(ApiListener, SocketFile), String> {
    let path = settings.path.clone();
    let bound = tokio::task::spawn_blocking(move || listener::bind(&path)).await;
    let bound = bound.map_err(|error| error.to_string())?;
    let (listener, file) = bound.map_err(|error| display_chain(&error))?;
    let conditions = Arc::clone(&context.conditions);
    let listener = ApiListener::new(listener, settings.path.clone(), conditions)
        .map_err(|error| error.to_string())?;
    Ok((listener, file))
}

/// Returns when the path no longer leads to this daemon's socket.
async fn replaced(file: &SocketFile, check_interval: Duration) {
    let mut ticks = interval(check_interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while file.is_current() {
        ticks.tick().await;
    }
}

/// The socket has mode 0600; this holds even if the mode was changed.
fn is_trusted(stream: &UnixStream) -> bool {
    match stream.peer_cred() {
        Ok(peer) if peer.uid() == 0 || peer.uid() == geteuid().as_raw() => true,
        Ok(peer) => {
            let (uid, pid) = (peer.uid(), peer.pid());
            tracing::warn!(uid, pid, "rejecting client of the socket: not root");
            false
        }
        Err(error) => {
            tracing::warn!(%error, "rejecting client of the socket: no peer credentials");
            false
        }
    }
}
