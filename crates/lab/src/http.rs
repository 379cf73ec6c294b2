//! Plain HTTP in a namespace, so that no `curl` has to be there.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::netns::Netns;

/// How long a server may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Far more than any client says before its body.
const LONGEST_HEAD: usize = 1 << 14;

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
    Response::parse(&answer).with_context(|| format!("GET {path} of {server}"))
}

/// An answer with a length. Each header has its line's end with it.
pub fn http_answer(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\n\r\n{body}")
}

/// What a client says before its body, with the empty line.
pub(crate) fn read_head(client: &mut impl Read) -> io::Result<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && head.len() < LONGEST_HEAD {
        client.read_exact(&mut byte)?;
        head.extend(byte);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

impl Response {
    /// Reads all that a server said until it closed the connection.
    pub(crate) fn parse(answer: &str) -> Result<Self> {
        let (head, body) = answer
            .split_once("\r\n\r\n")
            .with_context(|| format!("no answer in {answer:?}"))?;
        let status = head.split_whitespace().nth(1).unwrap_or_default();
        Ok(Self {
            status: status
                .parse()
                .with_context(|| format!("no status in {head:?}"))?,
            head: head.to_owned(),
            body: body.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_a_status_a_head_and_a_body() {
        let text = "HTTP/1.0 404 Not Found\r\nA: b\r\n\r\nno\r\n\r\nhere";
        let response = Response::parse(text).unwrap();
        assert_eq!(response.status, 404);
        assert_eq!(response.head, "HTTP/1.0 404 Not Found\r\nA: b");
        assert_eq!(response.body, "no\r\n\r\nhere");
    }

    #[test]
    fn an_answer_that_broke_off_is_none() {
        assert!(Response::parse("HTTP/1.0 200 OK\r\nContent-").is_err());
        assert!(Response::parse("").is_err());
    }
}
