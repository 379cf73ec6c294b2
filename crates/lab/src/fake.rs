//! An HTTP server with made-up answers, for what no real server can be made to answer.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result};

use crate::netns::Netns;

const MAX_HEAD: usize = 1 << 14;

/// A server of plain HTTP. It listens until dropped.
#[derive(Debug)]
pub struct Fake {
    listener: TcpListener,
}

impl Fake {
    /// Listens on all IPv4 addresses. `answer` maps the head of a request to a whole response, such as one
    /// of [`http_answer`].
    pub fn start(
        place: &impl Netns,
        answer: impl Fn(&str) -> String + Send + Sync + 'static,
    ) -> Result<Self> {
        let listener = place
            .enter(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))?
            .context("listen")?;
        let accepting = listener.try_clone().context("clone the socket")?;
        let answer = Arc::new(answer);
        thread::spawn(move || {
            while let Ok((client, _)) = accepting.accept() {
                let answer = Arc::clone(&answer);
                thread::spawn(move || serve(client, &*answer));
            }
        });
        Ok(Self { listener })
    }

    pub fn port(&self) -> Result<u16> {
        let address = self.listener.local_addr().context("get the port")?;
        Ok(address.port())
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        // Wakes the thread in accept.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }
}

/// A response with a length. Each header ends with CRLF.
pub fn http_answer(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\n\r\n{body}")
}

/// Reads a request up to its body.
pub(crate) fn read_head(client: &mut impl Read) -> io::Result<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && head.len() < MAX_HEAD {
        client.read_exact(&mut byte)?;
        head.extend(byte);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

fn serve(mut client: TcpStream, answer: &dyn Fn(&str) -> String) -> io::Result<()> {
    loop {
        let head = read_head(&mut client)?;
        let lower = head.to_lowercase();
        let mut lines = lower.lines();
        let length = lines.find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        // An unread body would reset the connection in the middle of the answer.
        let mut body = (&client).take(length.unwrap_or_default());
        io::copy(&mut body, &mut io::sink())?;
        client.write_all(answer(&head).as_bytes())?;
    }
}
