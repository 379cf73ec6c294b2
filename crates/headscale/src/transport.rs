//! One question and its answer over HTTP, within a deadline and a size.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper::header::LOCATION;
use hyper::{Request, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use jiff::Timestamp;
use rustls::ClientConfig;
use tokio::task::spawn_blocking;

use super::clock::Clock;
use super::connect::Connector;
use super::fault;
use super::problem::{Problem, Unreachable};
use super::settings::{Proxies, SetupError};
use super::trust;

/// A list of ten thousand nodes has some 15 MB.
const MOST_BYTES: usize = 32 << 20;
/// Headscale closes what is idle for 30 s; a call must not meet that.
const IDLE: Duration = Duration::from_secs(20);

/// What came back.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// Where else to go, if it says so.
    pub(super) location: Option<String>,
    pub(super) body: Bytes,
}

type Http = legacy::Client<HttpsConnector<Connector>, Full<Bytes>>;

/// The way to a server. A connection is kept for the next call.
pub(super) struct Transport {
    http: Mutex<Http>,
    connector: Connector,
    ca_file: Option<PathBuf>,
    /// Whether TLS failed at last: who is to be trusted may be another by the next call.
    is_in_doubt: AtomicBool,
    timeout: Duration,
    clock: Mutex<Option<Clock>>,
}

impl Transport {
    pub(super) fn new(
        server: &Uri,
        ca_file: Option<&Path>,
        proxies: &Proxies,
        timeout: Duration,
    ) -> Result<Self, SetupError> {
        let connector = Connector::to(server, proxies, timeout)?;
        let http = http(connector.clone(), trust::config(ca_file)?);
        Ok(Self {
            http: Mutex::new(http),
            connector,
            ca_file: ca_file.map(Path::to_owned),
            is_in_doubt: AtomicBool::new(false),
            timeout,
            clock: Mutex::new(None),
        })
    }

    pub(super) async fn send(&self, request: Request<Full<Bytes>>) -> Result<Answer, Problem> {
        if self.is_in_doubt.swap(false, Ordering::Relaxed) {
            self.trust_anew().await;
        }
        let exchange = tokio::time::timeout(self.timeout, self.exchange(request));
        let outcome = exchange.await.unwrap_or_else(|_| {
            Err(Problem::Unreachable {
                why: Unreachable::Timeout(self.timeout),
                detail: String::new(),
            })
        });
        if matches!(outcome, Err(Problem::Tls { .. })) {
            self.is_in_doubt.store(true, Ordering::Relaxed);
        }
        outcome
    }

    /// Reads again who is trusted: certificates are replaced while we run. Without them, it stays as it
    /// was.
    async fn trust_anew(&self) {
        let ca_file = self.ca_file.clone();
        let read = spawn_blocking(move || trust::config(ca_file.as_deref()));
        match read.await {
            Ok(Ok(tls)) => *locked(&self.http) = http(self.connector.clone(), tls),
            Ok(Err(error)) => {
                let source = std::error::Error::source(&error).map(ToString::to_string);
                tracing::warn!(%error, source, "who is trusted stays as it was");
            }
            // The runtime ends, and this with it.
            Err(_) => {}
        }
    }

    /// The server's clock, by its last answer.
    pub(super) fn clock(&self) -> Option<Clock> {
        *locked(&self.clock)
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Answer, Problem> {
        let http = locked(&self.http).clone();
        let response = http.request(request).await;
        let response = response.map_err(|error| fault::problem(&error, self.timeout))?;
        let (head, body) = response.into_parts();
        if let Some(clock) = Clock::read(&head.headers, Timestamp::now()) {
            *locked(&self.clock) = Some(clock);
        }
        let location = head.headers.get(LOCATION);
        let location = location.and_then(|text| text.to_str().ok());
        let body = Limited::new(body, MOST_BYTES).collect().await;
        let body = body.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
            Some(_) => Problem::TooLarge { limit: MOST_BYTES },
            None => fault::problem(&*error, self.timeout),
        })?;
        Ok(Answer {
            status: head.status.as_u16(),
            location: location.map(ToOwned::to_owned),
            body: body.to_bytes(),
        })
    }
}

fn http(connector: Connector, tls: ClientConfig) -> Http {
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        .wrap_connector(connector);
    legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(1)
        .build(connector)
}

/// Whoever panicked left it whole.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
