//! HTTP/1.1 over the unix socket: one connection per call, with a timeout and a size limit.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, header};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::error::Error;

/// tailscaled accepts no other host, as a defence against DNS rebinding.
const HOST: &str = "local-tailscaled.sock";
/// A status with 10,000 peers has some 20 MB.
const MAX_BODY_BYTES: usize = 64 << 20;

#[derive(Clone, Debug)]
pub(super) struct Call {
    method: Method,
    /// Path and query after `/localapi/v0/`.
    path: String,
    body: Bytes,
    timeout: Option<Duration>,
}

impl Call {
    pub(super) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    pub(super) fn post(path: impl Into<String>) -> Self {
        Self::new(Method::POST, path)
    }

    pub(super) fn patch(path: impl Into<String>) -> Self {
        Self::new(Method::PATCH, path)
    }

    fn new(method: Method, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            body: Bytes::new(),
            timeout: None,
        }
    }

    pub(super) fn with_body(mut self, body: &serde_json::Value) -> Self {
        self.body = body.to_string().into();
        self
    }

    pub(super) fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// For errors: without the query and the body, which may contain keys.
    pub(super) fn name(&self) -> String {
        let path = self.path.split('?').next().unwrap_or_default();
        format!("{} {path}", self.method)
    }
}

/// A response whose body is still being received.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) body: Incoming,
    /// Drives the connection, and closes it when dropped.
    _connection: AbortOnDropHandle<()>,
}

#[derive(Clone, Debug)]
pub(super) struct Transport {
    socket: PathBuf,
    timeout: Duration,
}

impl Transport {
    pub(super) fn new(socket: PathBuf, timeout: Duration) -> Self {
        Self { socket, timeout }
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Sends a request and reads the whole response.
    pub(super) async fn call(&self, call: Call) -> Result<Bytes, Error> {
        let (name, limit) = (call.name(), call.timeout);
        let exchange = async {
            let stream = self.send(call).await?;
            collect(&name, stream.body).await
        };
        self.within(limit, &name, exchange).await
    }

    /// Sends a request whose response has no end.
    pub(super) async fn stream(&self, call: Call) -> Result<Stream, Error> {
        let (name, limit) = (call.name(), call.timeout);
        self.within(limit, &name, self.send(call)).await
    }

    async fn within<T>(
        &self,
        limit: Option<Duration>,
        call: &str,
        exchange: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let limit = limit.unwrap_or(self.timeout);
        let expired = |_| Error::Timeout {
            call: call.to_owned(),
            limit,
        };
        timeout(limit, exchange).await.map_err(expired)?
    }

    /// Returns a successful response; any other status is an error.
    async fn send(&self, call: Call) -> Result<Stream, Error> {
        let name = call.name();
        let (response, connection) = self.exchange(call).await?;
        let (head, body) = response.into_parts();
        if head.status.is_success() {
            return Ok(Stream {
                body,
                _connection: connection,
            });
        }
        let text = collect(&name, body).await?;
        Err(Error::from_status(&name, head.status, &text))
    }

    async fn exchange(
        &self,
        call: Call,
    ) -> Result<(Response<Incoming>, AbortOnDropHandle<()>), Error> {
        let name = call.name();
        let broken = |source: Box<dyn std::error::Error + Send + Sync>| Error::Connection {
            call: name.clone(),
            source,
        };
        let stream = UnixStream::connect(&self.socket)
            .await
            .map_err(|source| Error::from_connect(self.socket.clone(), source))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| broken(error.into()))?;
        let connection = AbortOnDropHandle::new(tokio::spawn(async move {
            // The reader of the response gets the error.
            let _ = connection.await;
        }));
        let request = Request::builder()
            .method(call.method)
            .uri(format!("/localapi/v0/{}", call.path))
            .header(header::HOST, HOST)
            .body(Full::new(call.body))
            .map_err(|error| broken(error.into()))?;
        let response = sender
            .send_request(request)
            .await
            .map_err(|error| broken(error.into()))?;
        Ok((response, connection))
    }
}

async fn collect(call: &str, body: Incoming) -> Result<Bytes, Error> {
    match Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Error::ResponseTooLarge {
            call: call.to_owned(),
            limit_bytes: MAX_BODY_BYTES,
        }),
        Err(source) => Err(Error::Connection {
            call: call.to_owned(),
            source,
        }),
    }
}
