//! Datagrams to and fro: a server that says who called, and its client.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lab::{Family, Netns, eventually};

/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a dropped server may still wait for a caller.
const PAUSE: Duration = Duration::from_millis(20);

/// Answers each datagram with its own name and the caller's address. It listens until dropped.
pub(crate) struct UdpServer {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl UdpServer {
    /// Listens on all addresses of a place.
    pub(crate) fn start(place: &impl Netns, family: Family, port: u16, name: &str) -> Self {
        Self::bind(place, (any(family), port).into(), name)
    }

    /// Listens on one address of a place, which it answers from.
    pub(crate) fn bind(place: &impl Netns, address: SocketAddr, name: &str) -> Self {
        // A child that another test is about to start may still have an earlier one's socket.
        let socket = eventually(PATIENCE, "the port is free", || {
            place.enter(|| UdpSocket::bind(address)).unwrap().ok()
        });
        let socket = socket.unwrap();
        socket.set_read_timeout(Some(PAUSE)).unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let (end, name) = (Arc::clone(&is_over), name.to_owned());
        let thread = thread::spawn(move || {
            let mut buffer = [0; 64];
            while !end.load(Ordering::Relaxed) {
                if let Ok((_, caller)) = socket.recv_from(&mut buffer) {
                    let answer = format!("{name} {}", caller.ip());
                    // A caller that has gone is its own affair.
                    let _ = socket.send_to(answer.as_bytes(), caller);
                }
            }
        });
        let thread = Some(thread);
        Self { is_over, thread }
    }
}

impl Drop for UdpServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Then the port is free again.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Sends from one port to one destination, for as long as it lives.
pub(crate) struct UdpClient {
    socket: UdpSocket,
}

impl UdpClient {
    pub(crate) fn new(place: &impl Netns, server: SocketAddr) -> Self {
        let family = if server.is_ipv4() {
            Family::V4
        } else {
            Family::V6
        };
        let bind = || -> io::Result<UdpSocket> {
            let socket = UdpSocket::bind((any(family), 0))?;
            socket.connect(server)?;
            socket.set_read_timeout(Some(PATIENCE))?;
            Ok(socket)
        };
        let socket = place.enter(bind).unwrap().unwrap();
        Self { socket }
    }

    /// Who answers, and as whom it has seen us.
    pub(crate) fn ask(&self) -> io::Result<(String, IpAddr)> {
        self.socket.send(b"?")?;
        let mut buffer = [0; 128];
        let length = self.socket.recv(&mut buffer)?;
        let answer = String::from_utf8_lossy(&buffer[..length]).into_owned();
        let (name, address) = answer.split_once(' ').ok_or(io::ErrorKind::InvalidData)?;
        let address = address.parse().map_err(io::Error::other)?;
        Ok((name.to_owned(), address))
    }
}

fn any(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    }
}
