//! What changes in the kernel's network, told by the kernel itself.
//!
//! Two sockets, one for links, addresses, routes, rules and forwarding, one for nftables. Neither
//! blocks; [`wait`] does, until one of them has something to tell. What is told can be lost if it is
//! not fetched in time, and that is told as well: then anything may have changed.

mod netfilter;
mod route;

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with,
};

use crate::NetError;
use crate::netlink::{Message, messages};

/// More than the kernel tells at once, which is a page or two.
const BUFFER_LEN: usize = 32 * 1024;
/// So much is fetched before others get their turn.
const MAX_DATAGRAMS: usize = 64;

/// Something that has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A link is there, new or other than before.
    Link {
        /// Its number.
        index: u32,
        /// Its name.
        name: String,
        /// The group it is in.
        group: u32,
        /// Whether it is switched on.
        is_up: bool,
    },
    /// A link is gone.
    LinkGone {
        /// The name it had.
        name: String,
        /// The group it was in.
        group: u32,
    },
    /// A link has an address, new or other than before.
    Address {
        /// Which one.
        address: IpAddr,
    },
    /// An address was taken from a link.
    AddressGone {
        /// The link's number.
        link: u32,
    },
    /// A route is gone. Not told of IPv4 routes that go with their link.
    RouteGone {
        /// Whose it was.
        protocol: u8,
    },
    /// A rule is gone.
    RuleGone {
        /// Whose it was.
        protocol: u8,
    },
    /// Forwarding was switched on or off for all links.
    Forwarding {
        /// Whether it is on.
        is_on: bool,
    },
    /// Something of an nftables table.
    Table {
        /// The table's name.
        table: String,
        /// What of it.
        part: TablePart,
    },
    /// More happened than was told.
    Overrun,
}

/// What of an nftables table has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TablePart {
    /// The table itself.
    Itself,
    /// A chain that gets packets by itself.
    BaseChain,
    /// Another chain, by its name.
    Chain(String),
    /// A rule, by its chain's name.
    Rule(String),
    /// A set, a map, or elements of one.
    Set,
}

/// A socket that the kernel tells changes by, of the namespace that it was opened in.
#[derive(Debug)]
pub struct Monitor {
    fd: OwnedFd,
    read: fn(&Message<'_>) -> Option<Change>,
    buffer: Vec<u8>,
}

impl Monitor {
    /// Of links, addresses, routes, rules and forwarding.
    pub fn route() -> Result<Self, NetError> {
        Self::open(None, route::GROUPS, route::read)
    }

    /// Of nftables.
    pub fn netfilter() -> Result<Self, NetError> {
        Self::open(Some(netlink::NETFILTER), netfilter::GROUPS, netfilter::read)
    }

    fn open(
        protocol: Option<Protocol>,
        groups: u32,
        read: fn(&Message<'_>) -> Option<Change>,
    ) -> Result<Self, NetError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)
            .map_err(NetError::talk("open a netlink socket"))?;
        // As a mask, groups need no option to be set; all that matter are below 32.
        bind(&fd, &SocketAddrNetlink::new(0, groups))
            .map_err(NetError::talk("ask netlink for changes"))?;
        Ok(Self {
            fd,
            read,
            buffer: vec![0; BUFFER_LEN],
        })
    }

    /// Hands over what has changed. Whether there may be more.
    pub fn fetch(&mut self, mut each: impl FnMut(Change)) -> Result<bool, NetError> {
        for _ in 0..MAX_DATAGRAMS {
            let (kept, whole) = match recv(&self.fd, &mut self.buffer[..], RecvFlags::TRUNC) {
                Ok(length) => length,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::NOBUFS) => {
                    each(Change::Overrun);
                    continue;
                }
                Err(errno) => return Err(NetError::talk("receive changes from netlink")(errno)),
            };
            if whole > kept {
                each(Change::Overrun);
            }
            messages(&self.buffer[..kept])
                .filter_map(|message| (self.read)(&message))
                .for_each(&mut each);
        }
        Ok(true)
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Why [`wait`] came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// One of the monitors may have something to tell.
    Change,
    /// The other end of `stop` was written to or closed.
    Stop,
    /// Nothing came in time.
    Timeout,
}

/// Blocks until one of the monitors has something to tell, or `stop` has, but no longer than that.
pub fn wait(
    monitors: &[&Monitor],
    stop: BorrowedFd<'_>,
    patience: Option<Duration>,
) -> Result<Woken, NetError> {
    let sockets = monitors.iter().map(|monitor| monitor.as_fd());
    let mut descriptors: Vec<PollFd<'_>> = std::iter::once(stop)
        .chain(sockets)
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    let patience = patience.and_then(|patience| Timespec::try_from(patience).ok());
    match poll(&mut descriptors, patience.as_ref()) {
        Err(Errno::INTR) => Ok(Woken::Change),
        Err(errno) => Err(NetError::talk("wait for changes")(errno)),
        Ok(0) => Ok(Woken::Timeout),
        Ok(_) if descriptors[0].revents().is_empty() => Ok(Woken::Change),
        Ok(_) => Ok(Woken::Stop),
    }
}

/// The bit that stands for a group in an address.
const fn bit(group: u32) -> u32 {
    1 << (group - 1)
}
