//! A proxy that makes tunnels, as networks have that let nobody out otherwise.

use std::io::{self, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result};

use crate::http::read_head;
use crate::netns::Netns;

/// A proxy for `CONNECT`. It listens until dropped; tunnels live as long as their ends.
#[derive(Debug)]
pub struct Proxy {
    listener: TcpListener,
    targets: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    /// Listens on all IPv4 addresses of `place`.
    pub fn start(place: &impl Netns) -> Result<Self> {
        let listener = place
            .enter(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))?
            .context("listen")?;
        let proxy = Self {
            listener,
            targets: Arc::default(),
        };
        let accepting = proxy.listener.try_clone().context("share the socket")?;
        let targets = Arc::clone(&proxy.targets);
        // Only threads of the namespace reach what it reaches.
        place.enter(|| {
            thread::spawn(move || {
                while let Ok((client, _)) = accepting.accept() {
                    let targets = Arc::clone(&targets);
                    thread::spawn(move || tunnel(client, &targets));
                }
            });
        })?;
        Ok(proxy)
    }

    /// The port that it listens on.
    pub fn port(&self) -> Result<u16> {
        let address = self.listener.local_addr().context("ask for the port")?;
        Ok(address.port())
    }

    /// Where tunnels were asked to lead, in their order.
    pub fn targets(&self) -> Vec<String> {
        let targets = self.targets.lock();
        targets.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Wakes the thread in accept.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }
}

fn tunnel(mut client: TcpStream, targets: &Mutex<Vec<String>>) -> io::Result<()> {
    let head = read_head(&mut client)?;
    let mut words = head.split_whitespace();
    let (Some("CONNECT"), Some(target)) = (words.next(), words.next()) else {
        return client.write_all(b"HTTP/1.1 405 Method Not Allowed\r\n\r\n");
    };
    let list = targets.lock();
    list.unwrap_or_else(PoisonError::into_inner)
        .push(target.to_owned());
    let mut server = TcpStream::connect(target)?;
    client.write_all(b"HTTP/1.1 200 Connected\r\n\r\n")?;
    let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || {
        let _ = io::copy(&mut from_client, &mut to_server);
        to_server.shutdown(Shutdown::Write)
    });
    let _ = io::copy(&mut server, &mut client);
    client.shutdown(Shutdown::Write)
}
