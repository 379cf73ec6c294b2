//! A server that answers whatever it is told to: for what no real one can be made to say.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result};

use crate::http::read_head;
use crate::netns::Netns;

/// A server of plain HTTP. It listens until dropped.
#[derive(Debug)]
pub struct Fake {
    listener: TcpListener,
}

impl Fake {
    /// Listens on all IPv4 addresses of `place`. It answers each request by its head, with what
    /// [`http_answer`](crate::http_answer) makes, say.
    pub fn start(
        place: &impl Netns,
        answer: impl Fn(&str) -> String + Send + Sync + 'static,
    ) -> Result<Self> {
        let listener = place
            .enter(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))?
            .context("listen")?;
        let accepting = listener.try_clone().context("share the socket")?;
        let answer = Arc::new(answer);
        thread::spawn(move || {
            while let Ok((client, _)) = accepting.accept() {
                let answer = Arc::clone(&answer);
                thread::spawn(move || talk(client, &*answer));
            }
        });
        Ok(Self { listener })
    }

    /// The port that it listens on.
    pub fn port(&self) -> Result<u16> {
        let address = self.listener.local_addr().context("ask for the port")?;
        Ok(address.port())
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        // Wakes the thread in accept.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }
}

fn talk(mut client: TcpStream, answer: &dyn Fn(&str) -> String) -> io::Result<()> {
    loop {
        let head = read_head(&mut client)?;
        let lower = head.to_lowercase();
        let mut lines = lower.lines();
        let length = lines.find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        // A body that nobody has read would end the connection in the middle of the answer.
        let mut body = (&client).take(length.unwrap_or_default());
        io::copy(&mut body, &mut io::sink())?;
        client.write_all(answer(&head).as_bytes())?;
    }
}
