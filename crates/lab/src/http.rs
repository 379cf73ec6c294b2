//! A client for plain HTTP in a namespace, so that no `curl` has to be there.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::netns::Netns;

/// How long a server may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// `200` and so on.
    pub status: u16,
    /// Everything before the empty line.
    pub head: String,
    /// Everything after it.
    pub body: String,
}

/// Asks a server in `place` for a path.
pub fn http_get(place: &impl Netns, server: SocketAddr, path: &str) -> Result<Response> {
    let ask = || -> Result<Vec<u8>> {
        let mut stream = TcpStream::connect_timeout(&server, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        // Version 1.0: the answer ends with the connection, and has no chunks.
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {server}\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(answer)
    };
    let answer = place
        .enter(ask)?
        .with_context(|| format!("GET {path} of {server}"))?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .with_context(|| format!("GET {path} of {server}: no answer in {answer:?}"))?;
    let status = head.split_whitespace().nth(1).unwrap_or_default();
    Ok(Response {
        status: status
            .parse()
            .with_context(|| format!("GET {path} of {server}: no status in {head:?}"))?,
        head: head.to_owned(),
        body: body.to_owned(),
    })
}
