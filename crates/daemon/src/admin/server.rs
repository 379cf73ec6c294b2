//! Connections: how many, for how long, and how they end.
//!
//! One request per connection. Scrapers and probes come every few seconds, and a connection that is
//! kept open is a place that somebody else can't have. Where all places are taken, whoever has been
//! silent for longest makes room: a thousand slow clients don't keep a probe from its answer.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet, yield_now};
use tokio::time::{sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::client::Client;
use super::profile::Profiles;
use super::{AdminError, Sources, routes};
use crate::jam::{self, Accepted, Jam};
use node_config::Monitoring;

/// What a client may cost.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time; more wait to be accepted.
    pub connections: usize,
    /// For a request to arrive.
    pub header: Duration,
    /// For a connection as a whole, apart from the time that a profile takes.
    pub connection: Duration,
    /// For clients to be served when the server ends.
    pub goodbye: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 32,
            header: Duration::from_secs(5),
            connection: Duration::from_secs(15),
            goodbye: Duration::from_millis(500),
        }
    }
}

/// Larger requests than these are refused.
const MAX_HEADERS: usize = 64;
const MAX_HEADER_BYTES: usize = 16 << 10;

/// Wait after the kernel refused a connection: most likely too many files are open.
const PAUSE: Duration = Duration::from_secs(1);

/// The admin server while it runs.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    profiles: Arc<Profiles>,
    end: CancellationToken,
    task: JoinHandle<()>,
}

impl Server {
    /// Listens where the configuration says, and answers until `end`.
    pub async fn start(
        monitoring: &Monitoring,
        sources: Sources,
        limits: Limits,
        end: &CancellationToken,
    ) -> Result<Self, AdminError> {
        let wanted = monitoring.address;
        let bind = async {
            let listener = TcpListener::bind(wanted).await?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let (listener, address) = bind.await.map_err(|error| AdminError::of(wanted, error))?;
        let profiles = Arc::new(Profiles::new(monitoring));
        let router = routes::router(sources, Arc::clone(&profiles));
        let end = end.child_token();
        let task = tokio::spawn(serve(listener, router, limits, end.clone()));
        tracing::info!(%address, "health and metrics are served");
        Ok(Self {
            address,
            profiles,
            end,
            task,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes over what can change while it runs: whether there are profiles. Another address needs
    /// another server.
    pub fn reload(&self, monitoring: &Monitoring) {
        self.profiles.reload(monitoring);
    }

    /// Ends it: at once if nobody is being served, else in less than a second.
    pub async fn shutdown(self) {
        self.end.cancel();
        // That it was aborted is no news.
        let _ = self.task.await;
    }
}

async fn serve(listener: TcpListener, router: Router, limits: Limits, end: CancellationToken) {
    let mut connections = JoinSet::new();
    let accepting = accept(&listener, &router, limits, &end, &mut connections);
    end.run_until_cancelled(accepting).await;
    drop(listener);
    let all_served = async { while connections.join_next().await.is_some() {} };
    if timeout(limits.goodbye, all_served).await.is_err() {
        connections.shutdown().await;
    }
}

/// Takes whoever comes, as long as there is a place.
async fn accept(
    listener: &TcpListener,
    router: &Router,
    limits: Limits,
    end: &CancellationToken,
    connections: &mut JoinSet<()>,
) {
    let places = Arc::new(Semaphore::new(limits.connections));
    let mut silent: VecDeque<Client> = VecDeque::new();
    let mut jam = Jam::new(jam::CALM);
    loop {
        let (stream, peer) = match jam.accept(listener.accept()).await {
            Accepted::Client(accepted) => accepted,
            Accepted::Refused { error, is_first } => {
                if is_first {
                    let remedy = jam::remedy(&error);
                    tracing::warn!(%error, remedy, "accept a connection for health and metrics");
                }
                sleep(PAUSE).await;
                continue;
            }
            Accepted::Over => {
                tracing::info!("connections for health and metrics are accepted again");
                continue;
            }
        };
        silent.retain(Client::is_silent);
        if places.available_permits() == 0
            && let Some(longest) = silent.pop_front()
        {
            longest.dismiss();
        }
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let client = Client::new(peer, limits.connection);
        silent.push_back(client.clone());
        let answering = answer(stream, client, router.clone(), limits, end.clone());
        connections.spawn(async {
            answering.await;
            drop(place);
        });
        while connections.try_join_next().is_some() {}
        // What has come already is read before the next one may need the place.
        yield_now().await;
    }
}

/// Serves one connection.
async fn answer(
    stream: TcpStream,
    client: Client,
    router: Router,
    limits: Limits,
    end: CancellationToken,
) {
    let asked = client.clone();
    let inner = TowerToHyperService::new(router);
    let service = service_fn(move |request: Request<Incoming>| {
        asked.note_request();
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(asked.clone());
        inner.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEADER_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let mut is_ending = false;
    loop {
        let deadline = client.deadline();
        tokio::select! {
            // Whatever went wrong, it was the client's doing, and it knows.
            _ = connection.as_mut() => return,
            () = client.dismissed(), if client.is_silent() => return,
            () = end.cancelled(), if !is_ending => {
                is_ending = true;
                connection.as_mut().graceful_shutdown();
            }
            () = sleep_until(deadline) => if client.deadline() <= deadline {
                return;
            },
        }
    }
}
