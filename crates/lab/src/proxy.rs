//! An HTTP proxy for `CONNECT`, as in networks without direct egress.

use std::io::{self, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result};

use crate::fake::read_head;
use crate::netns::Netns;

/// Listens until dropped. Tunnels last as long as their connections.
#[derive(Debug)]
pub struct Proxy {
    listener: TcpListener,
    targets: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    /// Listens on all IPv4 addresses.
    pub fn start(place: &impl Netns) -> Result<Self> {
        let listener = place
            .enter(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))?
            .context("listen")?;
        let proxy = Self {
            listener,
            targets: Arc::default(),
        };
        let accepting = proxy.listener.try_clone().context("clone the socket")?;
        let targets = Arc::clone(&proxy.targets);
        // Tunnels are connected from this netns.
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

    pub fn port(&self) -> Result<u16> {
        let address = self.listener.local_addr().context("get the port")?;
        Ok(address.port())
    }

    /// The targets of all `CONNECT` requests so far.
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
