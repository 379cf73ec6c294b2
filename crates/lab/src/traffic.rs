//! An echo server and its client, on threads of this process.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::netns::Netns;

const TIMEOUT: Duration = Duration::from_secs(5);
/// A connection must survive an outage of the network.
const IDLE_TIMEOUT: Duration = Duration::from_mins(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

/// A TCP server that sends the client's address, as it sees it, and then echoes. It listens until dropped.
#[derive(Debug)]
pub struct EchoServer {
    listener: TcpListener,
}

impl EchoServer {
    /// Listens on all addresses. Port 0 takes any free one.
    pub fn start(place: &impl Netns, family: Family, port: u16) -> Result<Self> {
        let any: IpAddr = match family {
            Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
            Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
        };
        let listener = place
            .enter(|| TcpListener::bind((any, port)))?
            .with_context(|| format!("listen on port {port}"))?;
        let accepting = listener.try_clone().context("clone the listening socket")?;
        thread::spawn(move || {
            while let Ok((stream, peer)) = accepting.accept() {
                thread::spawn(move || echo(stream, peer));
            }
        });
        Ok(Self { listener })
    }

    pub fn port(&self) -> Result<u16> {
        Ok(self.listener.local_addr().context("get the port")?.port())
    }
}

impl Drop for EchoServer {
    fn drop(&mut self) {
        // Wakes the thread in accept, whose socket holds the netns.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }
}

fn echo(mut stream: TcpStream, peer: SocketAddr) -> io::Result<()> {
    stream.set_read_timeout(Some(IDLE_TIMEOUT))?;
    stream.write_all(format!("{}\n", peer.ip()).as_bytes())?;
    io::copy(&mut stream.try_clone()?, &mut stream)?;
    stream.shutdown(Shutdown::Write)
}

/// Returns the source address that the server saw.
pub(crate) fn call_echo(place: &impl Netns, server: SocketAddr, message: &str) -> Result<IpAddr> {
    let exchange = || -> io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&server, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.write_all(message.as_bytes())?;
        stream.shutdown(Shutdown::Write)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = place
        .enter(exchange)?
        .with_context(|| format!("connect to {server}"))?;
    match answer.split_once('\n') {
        Some((peer, echo)) if echo == message => peer
            .parse()
            .with_context(|| format!("{server} saw us as {peer:?}")),
        _ => bail!("{server} answered {answer:?} to {message:?}"),
    }
}
