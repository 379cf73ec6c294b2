//! Connections to the server: straight, or through a proxy's tunnel.

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

use super::settings::{Proxies, SetupError};

type Cause = Box<dyn StdError + Send + Sync>;
type Connecting<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// When the first sign of life of an idle peer is asked for.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The way to one server.
#[derive(Clone)]
pub(super) enum Connector {
    /// No proxy.
    Straight(HttpConnector),
    /// A proxy that makes a tunnel for any scheme: it never sees what is said in it.
    Through {
        tunnel: Box<Tunnel<HttpConnector>>,
        proxy: String,
    },
}

impl Connector {
    pub(super) fn to(
        server: &Uri,
        proxies: &Proxies,
        timeout: Duration,
    ) -> Result<Self, SetupError> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(timeout));
        tcp.set_keepalive(Some(KEEP_ALIVE));
        tcp.set_nodelay(true);
        let Some(proxy) = proxies.of(server) else {
            return Ok(Self::Straight(tcp));
        };
        // Its user and password are no part of this.
        let shown = proxy.uri().to_string();
        if proxy.uri().scheme_str() != Some("http") {
            return Err(SetupError::Proxy(shown));
        }
        let mut tunnel = Tunnel::new(proxy.uri().clone(), tcp);
        if let Some(authorization) = proxy.basic_auth() {
            tunnel = tunnel.with_auth(authorization.clone());
        }
        let proxy = shown.trim_end_matches('/').to_owned();
        let tunnel = Box::new(tunnel);
        Ok(Self::Through { tunnel, proxy })
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = Cause;
    type Future = Connecting<Self::Response, Self::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        match self {
            Self::Straight(tcp) => tcp.poll_ready(context).map_err(Into::into),
            Self::Through { tunnel, .. } => tunnel.poll_ready(context).map_err(Into::into),
        }
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        match self {
            Self::Straight(tcp) => {
                let connecting = tcp.call(server);
                Box::pin(async move { connecting.await.map_err(Into::into) })
            }
            Self::Through { tunnel, proxy } => {
                let connecting = tunnel.call(server);
                let proxy = proxy.clone();
                Box::pin(async move {
                    let failed = |error| ProxyFailed {
                        proxy,
                        cause: Box::new(error),
                    };
                    connecting.await.map_err(|error| failed(error).into())
                })
            }
        }
    }
}

/// The proxy made no tunnel.
#[derive(Debug)]
pub(super) struct ProxyFailed {
    /// Its address.
    pub(super) proxy: String,
    cause: Cause,
}

impl fmt::Display for ProxyFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the proxy {} made no tunnel", self.proxy)
    }
}

impl StdError for ProxyFailed {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.cause)
    }
}
