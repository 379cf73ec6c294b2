//! Change notifications of the kernel, as `ip monitor` and `nft monitor` show them.
//!
//! One non-blocking socket for links, addresses, routes, rules and forwarding, one for nftables;
//! [`wait`] blocks until one of them has data. Notifications are lost if they are not read in time:
//! [`Change::Overrun`] reports that, and then anything may have changed.

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

/// More than one notification, which is a page or two.
const BUFFER_LEN: usize = 32 * 1024;
/// So many are read before the other socket gets its turn.
const MAX_DATAGRAMS: usize = 64;

/// A change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A link is new or has changed.
    Link {
        /// Interface index.
        index: u32,
        /// Interface name.
        name: String,
        /// Link group.
        group: u32,
        /// `IFF_UP`
        is_up: bool,
    },
    /// A link was deleted.
    LinkGone {
        /// Interface name.
        name: String,
        /// Link group.
        group: u32,
    },
    /// An address is new or has changed.
    Address {
        /// The address.
        address: IpAddr,
    },
    /// An address was removed.
    AddressGone {
        /// Interface index.
        link: u32,
    },
    /// A route was removed. The kernel does not report IPv4 routes that are removed with their link.
    RouteGone {
        /// `RTPROT_*`
        protocol: u8,
    },
    /// A rule was removed.
    RuleGone {
        /// `RTPROT_*`
        protocol: u8,
    },
    /// Forwarding was turned on or off for all links.
    Forwarding {
        /// Whether it is on.
        is_on: bool,
    },
    /// An nftables table has changed.
    Table {
        /// Name of the table.
        table: String,
        /// What has changed.
        part: TablePart,
    },
    /// Notifications were lost.
    Overrun,
}

/// What of an nftables table has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TablePart {
    /// The table itself.
    Itself,
    /// A chain with a hook.
    BaseChain,
    /// Another chain, by its name.
    Chain(String),
    /// A rule, by its chain's name.
    Rule(String),
    /// A set, a map, or elements of one.
    Set,
}

/// A socket for notifications of the netns that it was opened in.
#[derive(Debug)]
pub struct Monitor {
    fd: OwnedFd,
    read: fn(&Message<'_>) -> Option<Change>,
    buffer: Vec<u8>,
}

impl Monitor {
    /// Links, addresses, routes, rules and forwarding.
    pub fn route() -> Result<Self, NetError> {
        Self::open(None, route::GROUPS, route::read)
    }

    /// nftables.
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
            .map_err(NetError::io("open a netlink socket"))?;
        // The mask holds groups below 32, which are all we need.
        bind(&fd, &SocketAddrNetlink::new(0, groups))
            .map_err(NetError::io("subscribe to netlink groups"))?;
        Ok(Self {
            fd,
            read,
            buffer: vec![0; BUFFER_LEN],
        })
    }

    /// Reads pending changes; returns whether there may be more.
    pub fn fetch(&mut self, mut each: impl FnMut(Change)) -> Result<bool, NetError> {
        for _ in 0..MAX_DATAGRAMS {
            let (length, whole) = match recv(&self.fd, &mut self.buffer[..], RecvFlags::TRUNC) {
                Ok(lengths) => lengths,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::NOBUFS) => {
                    each(Change::Overrun);
                    continue;
                }
                Err(errno) => return Err(NetError::io("receive from netlink")(errno)),
            };
            if whole > length {
                each(Change::Overrun);
            }
            messages(&self.buffer[..length])
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

/// Why [`wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// A monitor may have data.
    Change,
    /// `stop` is readable or closed.
    Stop,
    /// The timeout passed.
    Timeout,
}

/// Blocks until a monitor has data, `stop` is readable or closed, or the timeout passes.
pub fn wait(
    monitors: &[&Monitor],
    stop: BorrowedFd<'_>,
    timeout: Option<Duration>,
) -> Result<Woken, NetError> {
    let sockets = monitors.iter().map(|monitor| monitor.as_fd());
    let mut descriptors: Vec<PollFd<'_>> = std::iter::once(stop)
        .chain(sockets)
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    match poll(&mut descriptors, timeout.as_ref()) {
        Err(Errno::INTR) => Ok(Woken::Change),
        Err(errno) => Err(NetError::io("wait for changes")(errno)),
        Ok(0) => Ok(Woken::Timeout),
        Ok(_) if descriptors[0].revents().is_empty() => Ok(Woken::Change),
        Ok(_) => Ok(Woken::Stop),
    }
}

/// The bit of a group in the mask.
const fn bit(group: u32) -> u32 {
    1 << (group - 1)
}
