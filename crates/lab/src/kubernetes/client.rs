//! HTTPS to one server, with the authority and the proof that a user has.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use rustls::crypto::ring;
use rustls::pki_types::{PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::certificates::{Authority, Certified};
use crate::http::Response;
use crate::netns::Netns;
use crate::node::Node;

/// How long the server may be silent.
const PATIENCE: Duration = Duration::from_mins(1);

/// One connection is made for each request.
pub(super) struct Client<'a> {
    node: &'a Node,
    server: SocketAddr,
    tls: Arc<ClientConfig>,
    token: Option<String>,
}

/// What is sent along with a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Body<'s> {
    pub(super) content_type: &'static str,
    pub(super) text: &'s str,
}

impl<'a> Client<'a> {
    /// One who shows a certificate.
    pub(super) fn certified(
        node: &'a Node,
        server: SocketAddr,
        authority: &Authority,
        certified: &Certified,
    ) -> Result<Self> {
        let key = PrivatePkcs8KeyDer::from(certified.key_der.clone());
        let tls = trusting(authority)?
            .with_client_auth_cert(vec![certified.der.clone()], key.into())
            .context("use a user's certificate")?;
        Ok(Self {
            node,
            server,
            tls: Arc::new(tls),
            token: None,
        })
    }

    /// One who tells a secret.
    pub(super) fn with_token(
        node: &'a Node,
        server: SocketAddr,
        authority: &Authority,
        token: &str,
    ) -> Result<Self> {
        Ok(Self {
            node,
            server,
            tls: Arc::new(trusting(authority)?.with_no_client_auth()),
            token: Some(token.to_owned()),
        })
    }

    /// Sends a request from the node, and returns what the server answered, whatever that is.
    pub(super) fn send(&self, method: &str, path: &str, body: Option<Body>) -> Result<Response> {
        let request = self.request(method, path, body);
        let send = || -> Result<Vec<u8>> {
            let tcp = TcpStream::connect_timeout(&self.server, PATIENCE)?;
            tcp.set_read_timeout(Some(PATIENCE))?;
            tcp.set_write_timeout(Some(PATIENCE))?;
            let name = ServerName::from(self.server.ip());
            let connection = ClientConnection::new(self.tls.clone(), name)?;
            let mut stream = StreamOwned::new(connection, tcp);
            stream.write_all(request.as_bytes())?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer)?;
            Ok(answer)
        };
        let what = || format!("{method} {path} of {}", self.server);
        let answer = self.node.enter(send)?.with_context(what)?;
        Response::parse(&String::from_utf8_lossy(&answer)).with_context(what)
    }

    fn request(&self, method: &str, path: &str, body: Option<Body>) -> String {
        let server = self.server;
        let proof = match &self.token {
            Some(token) => format!("Authorization: Bearer {token}\r\n"),
            None => String::new(),
        };
        let Body { content_type, text } = body.unwrap_or(Body {
            content_type: "application/json",
            text: "",
        });
        let length = text.len();
        // Version 1.0: the answer ends with the connection, and has no chunks.
        format!(
            "{method} {path} HTTP/1.0\r\nHost: {server}\r\n{proof}\
             Accept: application/json\r\nContent-Type: {content_type}\r\n\
             Content-Length: {length}\r\n\r\n{text}"
        )
    }
}

fn trusting(
    authority: &Authority,
) -> Result<rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>> {
    let mut roots = RootCertStore::empty();
    roots
        .add(authority.der().clone())
        .context("trust the authority")?;
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .context("begin a TLS configuration")?;
    Ok(builder.with_root_certificates(roots))
}
