//! Traffic between namespaces: an echo server, its client, and ping.
//!
//! All sockets belong to threads of this process that entered the namespace, so servers end with
//! the test whatever happens, and no tool has to be there but ping.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::netns::Netns;

/// How long a server may keep quiet.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a client may: one that is cut off for a while must find its connection as it was.
const CLIENT_PATIENCE: Duration = Duration::from_mins(2);

/// The address family that a server listens on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4
    V4,
    /// IPv6
    V6,
}

/// A TCP server that says from where it was called and then gives back what it gets.
///
/// It listens until dropped. Its first line is the client's address as the server sees it, which
/// shows whether somebody translated it on the way.
#[derive(Debug)]
pub struct EchoServer {
    listener: TcpListener,
}

impl EchoServer {
    /// Listens on all addresses of `place`. Port 0 takes any free one.
    pub fn start(place: &impl Netns, family: Family, port: u16) -> Result<Self> {
        let any: IpAddr = match family {
            Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
            Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
        };
        let listener = place
            .enter(|| TcpListener::bind((any, port)))?
            .with_context(|| format!("listen on port {port}"))?;
        let accepting = listener.try_clone().context("share the listening socket")?;
        thread::spawn(move || {
            while let Ok((stream, peer)) = accepting.accept() {
                thread::spawn(move || echo(stream, peer));
            }
        });
        Ok(Self { listener })
    }

    /// The port it listens on.
    pub fn port(&self) -> Result<u16> {
        Ok(self
            .listener
            .local_addr()
            .context("ask for the port")?
            .port())
    }
}

impl Drop for EchoServer {
    fn drop(&mut self) {
        // Wakes the thread in accept, so that it lets go of the socket, and that of its namespace.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }
}

fn echo(mut stream: TcpStream, peer: SocketAddr) -> io::Result<()> {
    stream.set_read_timeout(Some(CLIENT_PATIENCE))?;
    stream.write_all(format!("{}\n", peer.ip()).as_bytes())?;
    io::copy(&mut stream.try_clone()?, &mut stream)?;
    stream.shutdown(Shutdown::Write)
}

/// Connects from `place`, sends `message`, expects it back, and tells as whom the server saw us.
pub(crate) fn call_echo(place: &impl Netns, server: SocketAddr, message: &str) -> Result<IpAddr> {
    let talk = || -> io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&server, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(message.as_bytes())?;
        stream.shutdown(Shutdown::Write)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = place
        .enter(talk)?
        .with_context(|| format!("talk to {server}"))?;
    match answer.split_once('\n') {
        Some((peer, echo)) if echo == message => peer
            .parse()
            .with_context(|| format!("{server} saw us as {peer:?}")),
        _ => bail!("{server} answered {answer:?} to {message:?}"),
    }
}
