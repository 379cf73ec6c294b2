//! Sends raw frames on a link.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::{Context, Result, bail};
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, bind, send, socket,
};

use crate::frames::Mac;
use crate::netns::Netns;

/// A packet socket on a link. Frames bypass the routing, neighbour table and netfilter of the netns.
#[derive(Debug)]
pub struct RawLink {
    socket: OwnedFd,
    name: String,
    mac: Mac,
}

impl RawLink {
    /// The link must be up when a frame is sent.
    pub fn open(place: &impl Netns, name: &str) -> Result<Self> {
        let (socket, address) = packet_socket(place, name)?;
        let mac = Mac(address.addr().unwrap_or_default());
        let name = name.to_owned();
        Ok(Self { socket, name, mac })
    }

    /// The link's MAC address; zeros if it has none.
    pub fn mac(&self) -> Mac {
        self.mac
    }

    /// Sends a frame with its Ethernet header.
    pub fn send(&self, frame: &[u8]) -> Result<()> {
        let sent = send(self.socket.as_raw_fd(), frame, MsgFlags::empty())
            .with_context(|| format!("send {} bytes on {}", frame.len(), self.name))?;
        if sent != frame.len() {
            bail!("sent {sent} of {} bytes on {}", frame.len(), self.name);
        }
        Ok(())
    }
}

/// A socket for all frames of a link, and the link's address.
pub(crate) fn packet_socket(place: &impl Netns, link: &str) -> Result<(OwnedFd, LinkAddr)> {
    let open = || -> io::Result<(OwnedFd, LinkAddr)> {
        let address = getifaddrs()?
            .filter(|one| one.interface_name == link)
            .find_map(|one| one.address?.as_link_addr().copied())
            .ok_or(io::ErrorKind::NotFound)?;
        let socket = socket(
            AddressFamily::Packet,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::EthAll,
        )?;
        // Without a protocol in the address the socket keeps its own: packet_bind in
        // https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git/tree/net/packet/af_packet.c
        bind(socket.as_raw_fd(), &address)?;
        Ok((socket, address))
    };
    place
        .enter(open)?
        .with_context(|| format!("open {link} for raw frames"))
}
