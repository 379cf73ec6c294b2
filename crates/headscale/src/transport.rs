//! One HTTP exchange through reqwest, with a timeout and a size limit.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::LOCATION;
use reqwest::{Request, Response, Url, redirect};
use rustls::ClientConfig;
use tokio::task::spawn_blocking;

use crate::clock::ClockSample;
use crate::error::{self, ErrorKind};
use crate::options::{ClientSetupError, Proxies, SelectedProxy};
use crate::tls;

/// A list of ten thousand nodes has some 15 MB.
const MAX_BODY_BYTES: usize = 32 << 20;
/// Headscale closes connections that are idle for 30 s; a request must not race with that.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(20);
const TCP_KEEPALIVE: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub(crate) struct RawResponse {
    pub(crate) status: u16,
    /// The `Location` header.
    pub(crate) location: Option<String>,
    pub(crate) body: Vec<u8>,
}

impl RawResponse {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

pub(crate) struct Transport {
    http: Mutex<reqwest::Client>,
    proxy: Option<SelectedProxy>,
    ca_file: Option<PathBuf>,
    /// Set by a TLS error: the CA certificates are read again before the next request.
    reload_ca: AtomicBool,
    timeout: Duration,
    clock: Mutex<Option<ClockSample>>,
}

impl Transport {
    pub(crate) fn new(
        server: &Url,
        ca_file: Option<&Path>,
        proxies: &Proxies,
        timeout: Duration,
    ) -> Result<Self, ClientSetupError> {
        let proxy = proxies.select(server)?;
        let http = build_client(tls::client_config(ca_file)?, proxy.as_ref(), timeout)?;
        Ok(Self {
            http: Mutex::new(http),
            proxy,
            ca_file: ca_file.map(Path::to_owned),
            reload_ca: AtomicBool::new(false),
            timeout,
            clock: Mutex::new(None),
        })
    }

    pub(crate) fn clock(&self) -> Option<ClockSample> {
        *lock(&self.clock)
    }

    pub(crate) async fn send(&self, request: Request) -> Result<RawResponse, ErrorKind> {
        if self.reload_ca.swap(false, Ordering::Relaxed) {
            self.reload_ca().await;
        }
        let http = lock(&self.http).clone();
        let result = match http.execute(request).await {
            Ok(response) => self.read(response).await,
            Err(error) => Err(self.classify(&error)),
        };
        if matches!(result, Err(ErrorKind::Tls { .. })) {
            self.reload_ca.store(true, Ordering::Relaxed);
        }
        result
    }

    async fn read(&self, mut response: Response) -> Result<RawResponse, ErrorKind> {
        if let Some(clock) = ClockSample::from_headers(response.headers(), Timestamp::now()) {
            *lock(&self.clock) = Some(clock);
        }
        let status = response.status().as_u16();
        let location = response.headers().get(LOCATION);
        let location = location.and_then(|value| Some(value.to_str().ok()?.to_owned()));
        let mut body = Vec::new();
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| self.classify(&error))?
        {
            if body.len() + chunk.len() > MAX_BODY_BYTES {
                return Err(ErrorKind::TooLarge {
                    limit: MAX_BODY_BYTES,
                });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(RawResponse {
            status,
            location,
            body,
        })
    }

    fn classify(&self, error: &reqwest::Error) -> ErrorKind {
        let proxy = self.proxy.as_ref().map(|proxy| proxy.address.as_str());
        error::of_transport(error, proxy, self.timeout)
    }

    /// CA files are replaced while the daemon runs. The old certificates stay if the new ones can't
    /// be read.
    async fn reload_ca(&self) {
        let ca_file = self.ca_file.clone();
        let Ok(loaded) = spawn_blocking(move || tls::client_config(ca_file.as_deref())).await
        else {
            return;
        };
        let built = loaded.and_then(|tls| build_client(tls, self.proxy.as_ref(), self.timeout));
        match built {
            Ok(http) => *lock(&self.http) = http,
            Err(error) => {
                let source = std::error::Error::source(&error).map(ToString::to_string);
                tracing::warn!(%error, source, "failed to reload CA certificates for Headscale");
            }
        }
    }
}

fn build_client(
    tls: ClientConfig,
    proxy: Option<&SelectedProxy>,
    timeout: Duration,
) -> Result<reqwest::Client, ClientSetupError> {
    let builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .timeout(timeout)
        // A redirect would carry the API key to another server.
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .tcp_keepalive(TCP_KEEPALIVE)
        .pool_idle_timeout(POOL_IDLE_TIMEOUT)
        .pool_max_idle_per_host(1)
        // `proxy` is the only one: reqwest must not read the environment again.
        .no_proxy();
    let builder = match proxy {
        Some(proxy) => builder.proxy(proxy.to_reqwest()?),
        None => builder,
    };
    builder.build().map_err(ClientSetupError::Http)
}

/// The data is whole even if a thread panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
