//! One question and its answer over HTTP, within a deadline and a size.

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper::header::LOCATION;
use hyper::{Request, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use jiff::Timestamp;

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

/// The way to a server. A connection is kept for the next call.
#[derive(Debug)]
pub(super) struct Transport {
    http: legacy::Client<HttpsConnector<Connector>, Full<Bytes>>,
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
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(trust::config(ca_file)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let http = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(1)
            .build(connector);
        Ok(Self {
            http,
            timeout,
            clock: Mutex::new(None),
        })
    }

    pub(super) async fn send(&self, request: Request<Full<Bytes>>) -> Result<Answer, Problem> {
        let exchange = tokio::time::timeout(self.timeout, self.exchange(request));
        exchange.await.unwrap_or_else(|_| {
            Err(Problem::Unreachable {
                why: Unreachable::Timeout(self.timeout),
                detail: String::new(),
            })
        })
    }

    /// The server's clock, by its last answer.
    pub(super) fn clock(&self) -> Option<Clock> {
        *self.lock()
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Answer, Problem> {
        let response = self.http.request(request).await;
        let response = response.map_err(|error| fault::problem(&error, self.timeout))?;
        let (head, body) = response.into_parts();
        if let Some(clock) = Clock::read(&head.headers, Timestamp::now()) {
            *self.lock() = Some(clock);
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

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Clock>> {
        // Whoever panicked left it whole.
        self.clock
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
