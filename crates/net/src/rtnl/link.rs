//! Links (network interfaces), above all veth pairs.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

use crate::netlink::{Batch, Message, Writer, attribute, attributes, flag, text_of, u32_of};
use crate::{Mac, NetError, Socket};

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const RTM_SETLINK: u16 = 19;
/// `RTEXT_FILTER_SKIP_STATS`: counters are most of an answer about a link.
const SKIP_STATS: u32 = 1 << 3;

/// `IFLA_*`, `include/uapi/linux/if_link.h`.
mod ifla {
    pub(super) const ADDRESS: u16 = 1;
    pub(super) const IFNAME: u16 = 3;
    pub(super) const MTU: u16 = 4;
    pub(super) const MASTER: u16 = 10;
    pub(super) const LINKINFO: u16 = 18;
    pub(super) const IFALIAS: u16 = 20;
    pub(super) const AF_SPEC: u16 = 26;
    pub(super) const GROUP: u16 = 27;
    pub(super) const EXT_MASK: u16 = 29;
    pub(super) const NET_NS_FD: u16 = 28;
    pub(super) const NUM_TX_QUEUES: u16 = 31;
    pub(super) const NUM_RX_QUEUES: u16 = 32;
    pub(super) const INFO_KIND: u16 = 1;
    pub(super) const INFO_DATA: u16 = 2;
    pub(super) const VETH_INFO_PEER: u16 = 1;
    pub(super) const INET_CONF: u16 = 1;
    pub(super) const INET6_ADDR_GEN_MODE: u16 = 8;
}

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
const IFF_UP: u32 = 1;
const IN6_ADDR_GEN_MODE_NONE: u8 = 1;

/// A veth pair to create: one end in the netns of the socket, the other in a pod.
#[derive(Clone, Copy, Debug)]
pub struct VethPair<'a> {
    /// The end in the netns of the socket.
    pub host: VethEnd<'a>,
    /// The end in `netns`.
    pub pod: VethEnd<'a>,
    /// The pod's netns.
    pub netns: BorrowedFd<'a>,
    /// MTU of both ends, in bytes.
    pub mtu: u32,
    /// Link group of the host end.
    pub group: u32,
}

/// One end of a veth pair.
#[derive(Clone, Copy, Debug)]
pub struct VethEnd<'a> {
    /// Interface name.
    pub name: &'a str,
    /// Interface index. The caller chooses it, which saves a query; a taken one is `EEXIST`.
    pub index: u32,
    /// Hardware address. udev leaves an address alone that was set at creation.
    pub mac: Mac,
}

impl VethPair<'_> {
    /// Creates the pair, both ends down.
    pub fn add_to(&self, batch: &mut Batch) {
        let Self { host, pod, .. } = self;
        let attempt = format!("create link {} with peer {}", host.name, pod.name);
        batch.add(RTM_NEWLINK, flag::CREATE | flag::EXCL, attempt, |message| {
            self.write_end(message, host);
            message.u32(ifla::GROUP, self.group);
            message.nest(ifla::LINKINFO, |info| {
                info.text(ifla::INFO_KIND, "veth");
                info.nest(ifla::INFO_DATA, |data| {
                    data.nest(ifla::VETH_INFO_PEER, |peer| {
                        self.write_end(peer, pod);
                        // Moving the peer later would take 22 ms, and on the host the names of
                        // two pods' `eth0` could collide.
                        peer.attribute(
                            ifla::NET_NS_FD,
                            &self.netns.as_raw_fd().cast_unsigned().to_ne_bytes(),
                        );
                    });
                });
            });
        });
    }

    fn write_end(&self, message: &mut Writer<'_>, end: &VethEnd<'_>) {
        header(message, end.index, 0, 0);
        message.text(ifla::IFNAME, end.name);
        message.mac(ifla::ADDRESS, end.mac);
        message.u32(ifla::MTU, self.mtu);
        // With more queues the kernel waits for two RCU grace periods, and veth uses only one.
        message.u32(ifla::NUM_TX_QUEUES, 1);
        message.u32(ifla::NUM_RX_QUEUES, 1);
    }
}

/// `IPV4_DEVCONF_*`: what `/proc/sys/net/ipv4/conf/<link>/` shows, `include/uapi/linux/ip.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
#[expect(
    missing_docs,
    reason = "the kernel's documentation has them by these names"
)]
pub enum Ipv4Conf {
    Forwarding = 1,
    AcceptRedirects = 4,
    SendRedirects = 6,
    RpFilter = 8,
    ArpFilter = 13,
    AcceptLocal = 23,
    RouteLocalnet = 26,
}

/// Settings of an existing link.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkSettings<'a> {
    /// `ip link set alias`.
    pub alias: Option<&'a str>,
    /// IPv4 sysctls.
    pub ipv4: &'a [(Ipv4Conf, u32)],
    /// Whether the kernel generates no IPv6 addresses: `addrgenmode none`.
    pub addr_gen_mode_none: bool,
}

impl LinkSettings<'_> {
    /// Applies them to the link with this index.
    pub fn add_to(&self, batch: &mut Batch, index: u32) {
        let attempt = format!("configure link {index}");
        batch.add(RTM_SETLINK, 0, attempt, |message| {
            header(message, index, 0, 0);
            if let Some(alias) = self.alias {
                message.text(ifla::IFALIAS, alias);
            }
            message.nest(ifla::AF_SPEC, |families| {
                families.nest(AF_INET, |family| {
                    family.nest(ifla::INET_CONF, |conf| {
                        for (key, value) in self.ipv4 {
                            conf.u32(*key as u16, *value);
                        }
                    });
                });
                if self.addr_gen_mode_none {
                    families.nest(AF_INET6, |family| {
                        family.u8(ifla::INET6_ADDR_GEN_MODE, IN6_ADDR_GEN_MODE_NONE);
                    });
                }
            });
        });
    }
}

impl Batch {
    /// Sets a link up.
    pub fn set_up(&mut self, index: u32) {
        let attempt = format!("set link {index} up");
        self.add(RTM_SETLINK, 0, attempt, |message| {
            header(message, index, IFF_UP, IFF_UP);
        });
    }
}

/// A link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Interface index.
    pub index: u32,
    /// Interface name.
    pub name: String,
    /// `IFF_UP`
    pub is_up: bool,
    /// Hardware address, if it has a 48-bit one.
    pub mac: Option<Mac>,
    /// MTU in bytes.
    pub mtu: u32,
    /// Link group, by default 0.
    pub group: u32,
    /// Device kind, for example `veth`; empty for hardware.
    pub kind: String,
    /// Alias, or empty.
    pub alias: String,
}

/// The link of this name, if there is one.
pub fn link(socket: &Socket, name: &str) -> Result<Option<Link>, NetError> {
    let attempt = format!("get link {name}");
    let write = |message: &mut Writer<'_>| {
        header(message, 0, 0, 0);
        message.text(ifla::IFNAME, name);
        message.u32(ifla::EXT_MASK, SKIP_STATS);
    };
    match socket.get(RTM_GETLINK, &attempt, write, read) {
        Err(error) if error.is(Errno::NODEV) => Ok(None),
        found => found,
    }
}

/// All links.
pub fn links(socket: &Socket) -> Result<Vec<Link>, NetError> {
    dump(socket, read)
}

fn dump<T>(
    socket: &Socket,
    read: impl FnMut(&Message<'_>) -> Option<T>,
) -> Result<Vec<T>, NetError> {
    let write = |message: &mut Writer<'_>| {
        header(message, 0, 0, 0);
        message.u32(ifla::EXT_MASK, SKIP_STATS);
    };
    socket.dump(RTM_GETLINK, "list links", write, read)
}

/// How many ports the bridge of this name has; 0 if there is no such bridge.
pub fn count_bridge_ports(socket: &Socket, bridge: &str) -> Result<usize, NetError> {
    let Some(bridge) = link(socket, bridge)? else {
        return Ok(0);
    };
    let is_port = |message: &Message<'_>| {
        let master = attribute(message.payload.get(16..)?, ifla::MASTER)?;
        (u32_of(master)? == bridge.index).then_some(())
    };
    Ok(dump(socket, is_port)?.len())
}

/// Deletes the link of this name, of a veth pair both ends; returns whether it existed.
pub fn delete_link(socket: &Socket, name: &str) -> Result<bool, NetError> {
    let mut batch = Batch::new();
    let attempt = format!("delete link {name}");
    batch.add(RTM_DELLINK, 0, attempt, |message| {
        header(message, 0, 0, 0);
        message.text(ifla::IFNAME, name);
    });
    match socket.send(batch) {
        Err(error) if error.is(Errno::NODEV) => Ok(false),
        outcome => outcome.map(|()| true),
    }
}

/// Moves a link to another group; a missing link is ignored.
pub fn move_to_group(batch: &mut Batch, index: u32, group: u32) {
    let attempt = format!("move link {index} to group {group}");
    batch.add(RTM_SETLINK, 0, attempt, |message| {
        header(message, index, 0, 0);
        message.u32(ifla::GROUP, group);
    });
    batch.tolerating(&[Errno::NODEV]);
}

/// Deletes all links of a group in about the time of one; an empty group is fine.
pub fn delete_group(socket: &Socket, group: u32) -> Result<(), NetError> {
    let mut batch = Batch::new();
    let attempt = format!("delete links of group {group}");
    batch.add(RTM_DELLINK, 0, attempt, |message| {
        header(message, 0, 0, 0);
        message.u32(ifla::GROUP, group);
    });
    batch.tolerating(&[Errno::NODEV]);
    socket.send(batch)
}

/// `struct ifinfomsg`.
fn header(message: &mut Writer<'_>, index: u32, flags: u32, change: u32) {
    message.fixed(&[0; 4]);
    message.fixed(&index.to_ne_bytes());
    message.fixed(&flags.to_ne_bytes());
    message.fixed(&change.to_ne_bytes());
}

fn read(message: &Message<'_>) -> Option<Link> {
    let mut link = Link {
        index: u32_of(message.payload.get(4..)?)?,
        name: String::new(),
        is_up: u32_of(message.payload.get(8..)?)? & IFF_UP != 0,
        mac: None,
        mtu: 0,
        group: 0,
        kind: String::new(),
        alias: String::new(),
    };
    for (kind, payload) in attributes(message.payload.get(16..)?) {
        match kind {
            ifla::IFNAME => link.name = text_of(payload),
            ifla::ADDRESS => link.mac = Mac::from_bytes(payload),
            ifla::MTU => link.mtu = u32_of(payload)?,
            ifla::GROUP => link.group = u32_of(payload)?,
            ifla::IFALIAS => link.alias = text_of(payload),
            ifla::LINKINFO => {
                link.kind = attribute(payload, ifla::INFO_KIND).map_or(String::new(), text_of);
            }
            _ => {}
        }
    }
    Some(link)
}
