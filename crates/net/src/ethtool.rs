//! What a link can do for the packets that pass it, and switching it on and off.
//!
//! Spoken in ethtool's own netlink, which the kernel has had since 5.6; features are known by the
//! names that `ethtool -k` shows. <https://docs.kernel.org/networking/ethtool-netlink.html>

use std::collections::BTreeSet;

use rustix::io::Errno;

use crate::netlink::{Batch, Message, Writer, attribute, attributes, text_of};
use crate::{NetError, Socket};

/// The kind of messages by which others are asked for: `GENL_ID_CTRL`,
/// `include/uapi/linux/genetlink.h`.
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
/// `ETHTOOL_FLAG_OMIT_REPLY`: that it was done is all there is to say.
const OMIT_REPLY: u32 = 2;
/// Several lists of some sixty names.
const ANSWER_LEN: usize = 64 * 1024;

/// A socket to ethtool, in the namespace that the thread was in when it was opened.
#[derive(Debug)]
pub struct Ethtool {
    socket: Socket,
    /// The kind that its messages have in this kernel.
    family: u16,
}

/// What a link can do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    changeable: BTreeSet<String>,
    wanted: BTreeSet<String>,
}

impl Features {
    /// Features that can be switched, and those of them that are wanted.
    pub fn new(changeable: &[&str], wanted: &[&str]) -> Self {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Self {
            changeable: set(changeable),
            wanted: set(wanted),
        }
    }

    /// Whether somebody wants this feature; nothing if it can't be switched. Whether the link grants
    /// it is another matter: asking twice is of no use.
    pub fn is_wanted(&self, name: &str) -> Option<bool> {
        self.changeable
            .contains(name)
            .then(|| self.wanted.contains(name))
    }
}

impl Ethtool {
    /// Nothing if this kernel has no such thing.
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
        match socket.ask(GENL_ID_CTRL, "look for ethtool", write, read) {
            Err(error) if error.is(Errno::NOENT) => Ok(None),
            found => Ok(found?.map(|family| Self { socket, family })),
        }
    }

    /// What the link of this number can do; nothing if there is no such link, or it doesn't tell.
    pub fn features(&self, link: u32) -> Result<Option<Features>, NetError> {
        let write = |message: &mut Writer<'_>| {
            start(message, ETHTOOL_MSG_FEATURES_GET);
            message.nest(HEADER, |header| header.u32(HEADER_DEV_INDEX, link));
        };
        let attempt = format!("ask what the link with index {link} can do");
        let mut bytes = vec![0; ANSWER_LEN];
        let family = self.family;
        let read = |message: &Message<'_>| read(message.payload.get(4..)?);
        match (self.socket).ask_into(&mut bytes, family, &attempt, write, read) {
            Err(error) if error.is(Errno::NODEV) || error.is(Errno::OPNOTSUPP) => Ok(None),
            found => found,
        }
    }

    /// Switches a feature of a link on or off.
    pub fn set(&self, link: u32, feature: &str, switch: Switch) -> Result<(), NetError> {
        let mut batch = Batch::new();
        let attempt = format!("switch {feature} {switch} on the link with index {link}");
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
        // This list names all features, and marks those that the link has.
        changeable: names(attribute(attrs, FEATURES_HW)?, |bit| {
            attribute(bit, BIT_VALUE).is_some()
        }),
        // This one names only those that are on.
        wanted: names(attribute(attrs, FEATURES_WANTED)?, |_| true),
    })
}

fn names(bitset: &[u8], is_set: impl Fn(&[u8]) -> bool) -> BTreeSet<String> {
    let bits = attribute(bitset, BITSET_BITS).unwrap_or_default();
    let bits = attributes(bits).filter(|(kind, bit)| *kind == BITS_BIT && is_set(bit));
    bits.filter_map(|(_, bit)| attribute(bit, BIT_NAME).map(text_of))
        .collect()
}
