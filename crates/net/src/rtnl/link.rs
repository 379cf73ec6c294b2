//! Links: veth pairs above all.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

use crate::netlink::{Batch, Message, Writer, attribute, attributes, flag, text_of, u32_of};
use crate::{Mac, NetError, Socket};

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
/// `RTEXT_FILTER_SKIP_STATS`: counters are most of what the kernel has to say about a link.
const SKIP_STATS: u32 = 1 << 3;
const RTM_SETLINK: u16 = 19;

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

/// A veth pair that is to be: one end here, the other one in a pod.
#[derive(Clone, Copy, Debug)]
pub struct NewVeth<'a> {
    /// The end in the namespace of the socket.
    pub host: End<'a>,
    /// The end in `netns`.
    pub pod: End<'a>,
    /// The pod's namespace.
    pub netns: BorrowedFd<'a>,
    /// Of both ends, in bytes.
    pub mtu: u32,
    /// The group of the end that is here.
    pub group: u32,
}

/// One end of a veth pair.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    /// Its name, from the first moment on.
    pub name: &'a str,
    /// Chosen by the caller, so that nothing has to be asked back; a taken one is `EEXIST`.
    pub index: u32,
    /// Set by us, so that udev leaves it alone and everybody knows it beforehand.
    pub mac: Mac,
}

impl NewVeth<'_> {
    /// Adds the making of the pair; both ends are down.
    pub fn add_to(&self, batch: &mut Batch) {
        let Self { host, pod, .. } = self;
        let attempt = format!("create the link {} with its peer {}", host.name, pod.name);
        batch.add(RTM_NEWLINK, flag::CREATE | flag::EXCL, attempt, |message| {
            self.write_end(message, host);
            message.u32(ifla::GROUP, self.group);
            message.nest(ifla::LINKINFO, |info| {
                info.text(ifla::INFO_KIND, "veth");
                info.nest(ifla::INFO_DATA, |data| {
                    data.nest(ifla::VETH_INFO_PEER, |peer| {
                        self.write_end(peer, pod);
                        // The peer is born inside the pod's namespace: moving it there takes
                        // 22 ms, and on the host two pods' `eth0` could collide.
                        peer.attribute(
                            ifla::NET_NS_FD,
                            &self.netns.as_raw_fd().cast_unsigned().to_ne_bytes(),
                        );
                    });
                });
            });
        });
    }

    fn write_end(&self, message: &mut Writer<'_>, end: &End<'_>) {
        header(message, end.index, 0, 0);
        message.text(ifla::IFNAME, end.name);
        message.mac(ifla::ADDRESS, end.mac);
        message.u32(ifla::MTU, self.mtu);
        // With more than one queue the kernel waits for two RCU grace periods, and a plain veth
        // uses the first queue only.
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

/// What is set on a link that exists.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings<'a> {
    /// A text for people, and for whoever has to find out later what the link is for.
    pub alias: Option<&'a str>,
    /// IPv4 settings.
    pub ipv4: &'a [(Ipv4Conf, u32)],
    /// Whether the link is to have no IPv6 addresses but those that it is given.
    pub no_ipv6_of_its_own: bool,
}

impl Settings<'_> {
    /// Adds the settings of the link with this index. Nothing, if there are none.
    pub fn add_to(&self, batch: &mut Batch, index: u32) {
        let attempt = format!("set up the link with index {index}");
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
                if self.no_ipv6_of_its_own {
                    families.nest(AF_INET6, |family| {
                        family.u8(ifla::INET6_ADDR_GEN_MODE, IN6_ADDR_GEN_MODE_NONE);
                    });
                }
            });
        });
    }
}

impl Batch {
    /// Adds switching a link on.
    pub fn switch_on(&mut self, index: u32) {
        let attempt = format!("switch the link with index {index} on");
        self.add(RTM_SETLINK, 0, attempt, |message| {
            header(message, index, IFF_UP, IFF_UP);
        });
    }
}

/// A link as the kernel has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Whether it is switched on.
    pub is_up: bool,
    /// Its hardware address, if it has one.
    pub mac: Option<Mac>,
    /// In bytes.
    pub mtu: u32,
    /// The group it is in; 0 unless somebody set one.
    pub group: u32,
    /// What kind of device it is: `veth`, say. Empty for a real one.
    pub kind: String,
    /// The text that somebody gave it.
    pub alias: String,
}

/// The link of this name, if there is one.
pub fn link(socket: &Socket, name: &str) -> Result<Option<Link>, NetError> {
    let attempt = format!("look for the link {name}");
    let write = |message: &mut Writer<'_>| {
        header(message, 0, 0, 0);
        message.text(ifla::IFNAME, name);
        message.u32(ifla::EXT_MASK, SKIP_STATS);
    };
    match socket.ask(RTM_GETLINK, &attempt, write, read) {
        Err(error) if error.is(Errno::NODEV) => Ok(None),
        found => found,
    }
}

/// All links.
pub fn links(socket: &Socket) -> Result<Vec<Link>, NetError> {
    socket.dump(
        RTM_GETLINK,
        "list the links",
        |message| {
            header(message, 0, 0, 0);
            message.u32(ifla::EXT_MASK, SKIP_STATS);
        },
        read,
    )
}

/// How many links are ports of the bridge of this name; none if there is no such link.
pub fn ports_of(socket: &Socket, bridge: &str) -> Result<usize, NetError> {
    let Some(bridge) = link(socket, bridge)? else {
        return Ok(0);
    };
    let is_port = |message: &Message<'_>| {
        let master = attribute(message.payload.get(16..)?, ifla::MASTER)?;
        (u32_of(master)? == bridge.index).then_some(())
    };
    let ports = socket.dump(
        RTM_GETLINK,
        "list the links",
        |message| {
            header(message, 0, 0, 0);
            message.u32(ifla::EXT_MASK, SKIP_STATS);
        },
        is_port,
    )?;
    Ok(ports.len())
}

/// Deletes the link of this name, and its peer; whether it was there.
pub fn delete_link(socket: &Socket, name: &str) -> Result<bool, NetError> {
    let mut batch = Batch::new();
    batch.add(
        RTM_DELLINK,
        0,
        format!("delete the link {name}"),
        |message| {
            header(message, 0, 0, 0);
            message.text(ifla::IFNAME, name);
        },
    );
    match socket.send(batch) {
        Err(error) if error.is(Errno::NODEV) => Ok(false),
        outcome => outcome.map(|()| true),
    }
}

/// Adds moving a link to another group.
pub fn move_to_group(batch: &mut Batch, index: u32, group: u32) {
    let attempt = format!("move the link with index {index} to group {group}");
    batch.add(RTM_SETLINK, 0, attempt, |message| {
        header(message, index, 0, 0);
        message.u32(ifla::GROUP, group);
    });
    batch.tolerating(&[Errno::NODEV]);
}

/// Deletes all links of a group at once, which takes hardly longer than one; none is fine.
pub fn delete_group(socket: &Socket, group: u32) -> Result<(), NetError> {
    let mut batch = Batch::new();
    let attempt = format!("delete the links of group {group}");
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
