//! Offload features of links, by ethtool's netlink interface (Linux 5.6), under the names that
//! `ethtool -k` shows. <https://docs.kernel.org/networking/ethtool-netlink.html>

use std::collections::BTreeSet;

use rustix::io::Errno;

use crate::netlink::{Batch, Message, Writer, attribute, attributes, text_of};
use crate::{NetError, Socket};

/// `include/uapi/linux/genetlink.h`
const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

/// `include/uapi/linux/ethtool_netlink.h`
const ETHTOOL_MSG_FEATURES_GET: u8 = 11;
const ETHTOOL_MSG_FEATURES_SET: u8 = 12;
const HEADER: u16 = 1;
const HEADER_DEV_INDEX: u16 = 1;
const HEADER_FLAGS: u16 = 3;
const FEATURES_HW: u16 = 2;
const FEATURES_WANTED: u16 = 3;
const BITSET_BITS: u16 = 3;
const BITS_BIT: u16 = 1;
const BIT_NAME: u16 = 2;
const BIT_VALUE: u16 = 3;
/// `ETHTOOL_FLAG_OMIT_REPLY`: the acknowledgement is enough.
const OMIT_REPLY: u32 = 2;
/// Fits several lists of some sixty names.
const REPLY_LEN: usize = 64 * 1024;

/// An ethtool socket of the netns that the thread was in when it opened the socket.
#[derive(Debug)]
pub struct Ethtool {
    socket: Socket,
    /// The message kind that this kernel assigned to ethtool.
    family: u16,
}

/// Features of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    changeable: BTreeSet<String>,
    wanted: BTreeSet<String>,
}

impl Features {
    /// The features that can be changed, and those of them that are requested.
    pub fn new(changeable: &[&str], wanted: &[&str]) -> Self {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Self {
            changeable: set(changeable),
            wanted: set(wanted),
        }
    }

    /// Whether this feature is requested; `None` if it cannot be changed. The driver may not grant a
    /// requested feature, and then requesting it again is of no use.
    pub fn is_wanted(&self, name: &str) -> Option<bool> {
        self.changeable
            .contains(name)
            .then(|| self.wanted.contains(name))
    }
}

impl Ethtool {
    /// `None` if this kernel has no ethtool netlink.
    pub fn open() -> Result<Option<Self>, NetError> {
        let socket = Socket::generic()?;
        let write = |message: &mut Writer<'_>| {
            start(message, CTRL_CMD_GETFAMILY);
            message.text(CTRL_ATTR_FAMILY_NAME, "ethtool");
        };
        let read = |message: &Message<'_>| {
            let id = attribute(message.payload.get(4..)?, CTRL_ATTR_FAMILY_ID)?;
            Some(u16::from_ne_bytes(id.get(..2)?.try_into().ok()?))
        };
        match socket.get(GENL_ID_CTRL, "get netlink family ethtool", write, read) {
            Err(error) if error.is(Errno::NOENT) => Ok(None),
            found => Ok(found?.map(|family| Self { socket, family })),
        }
    }

    /// The features of a link; `None` if there is no such link, or it does not report them.
    pub fn features(&self, link: u32) -> Result<Option<Features>, NetError> {
        let write = |message: &mut Writer<'_>| {
            start(message, ETHTOOL_MSG_FEATURES_GET);
            message.nest(HEADER, |header| header.u32(HEADER_DEV_INDEX, link));
        };
        let attempt = format!("get features of link {link}");
        let mut bytes = vec![0; REPLY_LEN];
        let family = self.family;
        let read = |message: &Message<'_>| read(message.payload.get(4..)?);
        match (self.socket).get_into(&mut bytes, family, &attempt, write, read) {
            Err(error) if error.is(Errno::NODEV) || error.is(Errno::OPNOTSUPP) => Ok(None),
            found => found,
        }
    }

    /// Turns a feature of a link on or off.
    pub fn set(&self, link: u32, feature: &str, switch: Switch) -> Result<(), NetError> {
        let mut batch = Batch::new();
        let attempt = format!("turn {feature} {switch} on link {link}");
        batch.add(self.family, 0, attempt, |message| {
            start(message, ETHTOOL_MSG_FEATURES_SET);
            message.nest(HEADER, |header| {
                header.u32(HEADER_DEV_INDEX, link);
                header.u32(HEADER_FLAGS, OMIT_REPLY);
            });
            message.nest(FEATURES_WANTED, |set| {
                set.nest(BITSET_BITS, |bits| {
                    bits.nest(BITS_BIT, |bit| {
                        bit.text(BIT_NAME, feature);
                        if switch == Switch::On {
                            bit.attribute(BIT_VALUE, &[]);
                        }
                    });
                });
            });
        });
        self.socket.send(batch)
    }
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

impl From<bool> for Switch {
    fn from(is_on: bool) -> Self {
        if is_on { Self::On } else { Self::Off }
    }
}

impl std::fmt::Display for Switch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::On => "on",
            Self::Off => "off",
        })
    }
}

/// `struct genlmsghdr`
fn start(message: &mut Writer<'_>, command: u8) {
    const VERSION: u8 = 1;
    message.fixed(&[command, VERSION, 0, 0]);
}

fn read(attrs: &[u8]) -> Option<Features> {
    Some(Features {
        // Lists all features, with a value for those that can be changed.
        changeable: names(attribute(attrs, FEATURES_HW)?, |bit| {
            attribute(bit, BIT_VALUE).is_some()
        }),
        // Lists only requested features.
        wanted: names(attribute(attrs, FEATURES_WANTED)?, |_| true),
    })
}

fn names(bitset: &[u8], is_set: impl Fn(&[u8]) -> bool) -> BTreeSet<String> {
    let bits = attribute(bitset, BITSET_BITS).unwrap_or_default();
    let bits = attributes(bits).filter(|(kind, bit)| *kind == BITS_BIT && is_set(bit));
    bits.filter_map(|(_, bit)| attribute(bit, BIT_NAME).map(text_of))
        .collect()
}
