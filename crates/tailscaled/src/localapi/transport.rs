//! HTTP/1.1 over the socket: a connection per call, each with a time limit and an end.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::error::Error;

/// tailscaled answers to no other name, so that a web page can't make a browser call it.
const HOST: &str = "local-tailscaled.sock";
/// A status of 10,000 members has some 20 MB.
const MOST_BYTES: usize = 64 << 20;

/// A question.
#[derive(Clone, Debug)]
pub(super) struct Call {
    method: Method,
    /// After `/localapi/v0/`, with its query.
    path: String,
    body: Bytes,
    limit: Option<Duration>,
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
            limit: None,
        }
    }

    /// Sends JSON along.
    pub(super) fn with(mut self, body: &serde_json::Value) -> Self {
        self.body = body.to_string().into();
        self
    }

    /// Takes another time than usual.
    pub(super) fn within(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// What errors name it: never what it carries.
    pub(super) fn name(&self) -> String {
        let path = self.path.split('?').next().unwrap_or_default();
        format!("{} {path}", self.method)
    }
}

/// An answer that is still coming in.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) body: Incoming,
    /// Drives the connection, and ends it with this.
    _connection: AbortOnDropHandle<()>,
}

/// The way to a tailscaled.
#[derive(Clone, Debug)]
pub(super) struct Transport {
    socket: PathBuf,
    limit: Duration,
}

impl Transport {
    pub(super) fn new(socket: PathBuf, limit: Duration) -> Self {
        Self { socket, limit }
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Asks, and reads the whole answer.
    pub(super) async fn call(&self, call: Call) -> Result<Bytes, Error> {
        let (status, body) = self.ask(call.clone()).await?;
        if status.is_success() {
            return Ok(body);
        }
        Err(Error::answered(&call.name(), status, &body))
    }

    /// The same, where an answer that is no success is an answer too.
    pub(super) async fn ask(&self, call: Call) -> Result<(StatusCode, Bytes), Error> {
        let (name, limit) = (call.name(), call.limit.unwrap_or(self.limit));
        let work = async {
            let (response, _connection) = self.send(call).await?;
            let status = response.status();
            let body = collect(&name, response.into_body()).await?;
            Ok((status, body))
        };
        let late = |_| Error::Late {
            call: name.clone(),
            limit,
        };
        timeout(limit, work).await.map_err(late)?
    }

    /// Asks for an answer that has no end.
    pub(super) async fn stream(&self, call: Call) -> Result<Stream, Error> {
        let (name, limit) = (call.name(), call.limit.unwrap_or(self.limit));
        let work = async {
            let (response, connection) = self.send(call).await?;
            let (head, body) = response.into_parts();
            if head.status.is_success() {
                return Ok(Stream {
                    body,
                    _connection: connection,
                });
            }
            let text = collect(&name, body).await?;
            Err(Error::answered(&name, head.status, &text))
        };
        let late = |_| Error::Late {
            call: name.clone(),
            limit,
        };
        timeout(limit, work).await.map_err(late)?
    }

    async fn send(&self, call: Call) -> Result<(Response<Incoming>, AbortOnDropHandle<()>), Error> {
        let name = call.name();
        let broken = |source: Box<dyn std::error::Error + Send + Sync>| Error::Broken {
            call: name.clone(),
            source,
        };
        let stream = UnixStream::connect(&self.socket)
            .await
            .map_err(|source| Error::connect(self.socket.clone(), source))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| broken(error.into()))?;
        let connection = AbortOnDropHandle::new(tokio::spawn(async move {
            // Whoever waits for the answer is told of it.
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
    match Limited::new(body, MOST_BYTES).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Error::TooLong {
            call: call.to_owned(),
            limit_bytes: MOST_BYTES,
        }),
        Err(source) => Err(Error::Broken {
            call: call.to_owned(),
            source,
        }),
    }
}
