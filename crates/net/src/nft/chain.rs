//! Chains, and which rules are in a table: as much as it takes to see that somebody was at them.

use rustix::io::Errno;

use super::{HEADER_LEN, message, write_header};
use crate::netlink::{Message, attribute, text_of};
use crate::{NetError, Socket};

const NFTA_CHAIN_TABLE: u16 = 1;
const NFTA_CHAIN_HANDLE: u16 = 2;
const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_CHAIN_HOOK: u16 = 4;
const NFTA_CHAIN_POLICY: u16 = 5;
const NFTA_HOOK_HOOKNUM: u16 = 1;
const NFTA_HOOK_PRIORITY: u16 = 2;
const NFTA_RULE_TABLE: u16 = 1;
const NFTA_RULE_CHAIN: u16 = 2;
const NFTA_RULE_HANDLE: u16 = 3;
const NF_DROP: u32 = 0;

/// Where a packet is when a chain gets it: `NF_INET_*`.
pub const HOOK_FORWARD: u32 = 2;

/// Whose packets a table is for: `NFPROTO_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TableFamily {
    /// Both IPv4 and IPv6.
    Inet,
    /// IPv4.
    Ip,
    /// IPv6.
    Ip6,
    /// Something else, by its number.
    Other(u8),
}

impl TableFamily {
    fn of(number: u8) -> Self {
        match number {
            1 => Self::Inet,
            2 => Self::Ip,
            10 => Self::Ip6,
            other => Self::Other(other),
        }
    }

    /// As `nft` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Inet => "inet",
            Self::Ip => "ip",
            Self::Ip6 => "ip6",
            Self::Other(_) => "other",
        }
    }
}

/// What happens to packets that a base chain's rules don't decide on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// They go on.
    Accept,
    /// They are dropped.
    Drop,
}

/// A chain of any table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Its table's family.
    pub family: TableFamily,
    /// Its table.
    pub table: String,
    /// Its name.
    pub name: String,
    /// Its number, which no other chain of the table ever has.
    pub handle: u64,
    /// Where it gets packets by itself: the hook and the place among others there.
    pub hook: Option<(u32, i32)>,
    /// What becomes of packets at its end, if it has a hook.
    pub policy: Policy,
}

/// All chains of all tables.
pub fn chains(socket: &Socket) -> Result<Vec<Chain>, NetError> {
    const ALL_FAMILIES: [u8; HEADER_LEN] = [0; HEADER_LEN];
    socket.dump(
        message::GETCHAIN,
        "list the nftables chains",
        |message| message.fixed(&ALL_FAMILIES),
        read,
    )
}

/// A chain of a table of the family `inet`, if it is there.
pub fn chain(socket: &Socket, table: &str, name: &str) -> Result<Option<Chain>, NetError> {
    let answer = socket.ask(
        message::GETCHAIN,
        &format!("look for the chain {name} of the nftables table inet {table}"),
        |message| {
            write_header(message);
            message.text(NFTA_CHAIN_TABLE, table);
            message.text(NFTA_CHAIN_NAME, name);
        },
        read,
    );
    match answer {
        Err(error) if error.is(Errno::NOENT) => Ok(None),
        answer => answer,
    }
}

fn read(message: &Message<'_>) -> Option<Chain> {
    let family = TableFamily::of(*message.payload.first()?);
    let attrs = message.payload.get(HEADER_LEN..)?;
    let text = |kind| attribute(attrs, kind).map(text_of);
    let hook = attribute(attrs, NFTA_CHAIN_HOOK).and_then(|hook| {
        let number = u32_be(attribute(hook, NFTA_HOOK_HOOKNUM)?)?;
        let priority = u32_be(attribute(hook, NFTA_HOOK_PRIORITY)?)?;
        Some((number, priority.cast_signed()))
    });
    let policy = match attribute(attrs, NFTA_CHAIN_POLICY).and_then(u32_be) {
        Some(NF_DROP) => Policy::Drop,
        _ => Policy::Accept,
    };
    Some(Chain {
        family,
        table: text(NFTA_CHAIN_TABLE)?,
        name: text(NFTA_CHAIN_NAME)?,
        handle: u64_be(attribute(attrs, NFTA_CHAIN_HANDLE)?)?,
        hook,
        policy,
    })
}

/// Which rule is in which chain of a table of the family `inet`, in order: chain, and the rule's
/// number, which no other rule of the table ever has.
pub fn rule_handles(socket: &Socket, table: &str) -> Result<Vec<(String, u64)>, NetError> {
    socket.dump(
        message::GETRULE,
        &format!("list the rules of the nftables table inet {table}"),
        |message| {
            write_header(message);
            message.text(NFTA_RULE_TABLE, table);
        },
        |message| {
            let attrs = message.payload.get(HEADER_LEN..)?;
            // Kernels that don't know this kind of question answer with the rules of all tables.
            let is_asked = attribute(attrs, NFTA_RULE_TABLE).map(text_of)? == table;
            let chain = attribute(attrs, NFTA_RULE_CHAIN).map(text_of)?;
            let handle = u64_be(attribute(attrs, NFTA_RULE_HANDLE)?)?;
            is_asked.then_some((chain, handle))
        },
    )
}

pub(super) fn u32_be(payload: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(payload.get(..4)?.try_into().ok()?))
}

pub(super) fn u64_be(payload: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(payload.get(..8)?.try_into().ok()?))
}
