//! Chains, and the handles of rules.

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

/// `NF_INET_FORWARD`
pub const HOOK_FORWARD: u32 = 2;

/// Family of a table: `NFPROTO_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TableFamily {
    /// Both IPv4 and IPv6.
    Inet,
    /// IPv4.
    Ip,
    /// IPv6.
    Ip6,
    /// Another one, by its number.
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

    /// The name that `nft` uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Inet => "inet",
            Self::Ip => "ip",
            Self::Ip6 => "ip6",
            Self::Other(_) => "other",
        }
    }
}

/// Policy of a base chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Accept packets.
    Accept,
    /// Drop packets.
    Drop,
}

/// A chain of any table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Family of its table.
    pub family: TableFamily,
    /// Name of its table.
    pub table: String,
    /// Name of the chain.
    pub name: String,
    /// Handle; the kernel never uses it again in this table.
    pub handle: u64,
    /// Hook and priority of a base chain.
    pub hook: Option<(u32, i32)>,
    /// Policy, if it has a hook.
    pub policy: Policy,
}

/// All chains of all tables.
pub fn chains(socket: &Socket) -> Result<Vec<Chain>, NetError> {
    const ALL_FAMILIES: [u8; HEADER_LEN] = [0; HEADER_LEN];
    socket.dump(
        message::GETCHAIN,
        "list nftables chains",
        |message| message.fixed(&ALL_FAMILIES),
        read,
    )
}

/// A chain of a table of the family `inet`, if it exists.
pub fn chain(socket: &Socket, table: &str, name: &str) -> Result<Option<Chain>, NetError> {
    let reply = socket.get(
        message::GETCHAIN,
        &format!("get chain {name} of nftables table inet {table}"),
        |message| {
            write_header(message);
            message.text(NFTA_CHAIN_TABLE, table);
            message.text(NFTA_CHAIN_NAME, name);
        },
        read,
    );
    match reply {
        Err(error) if error.is(Errno::NOENT) => Ok(None),
        reply => reply,
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

/// Chain and handle of each rule of a table of the family `inet`, in order. The kernel never uses a
/// handle again in a table.
pub fn rule_handles(socket: &Socket, table: &str) -> Result<Vec<(String, u64)>, NetError> {
    socket.dump(
        message::GETRULE,
        &format!("list rules of nftables table inet {table}"),
        |message| {
            write_header(message);
            message.text(NFTA_RULE_TABLE, table);
        },
        |message| {
            let attrs = message.payload.get(HEADER_LEN..)?;
            // Old kernels ignore the filter and list all tables.
            let is_of_table = attribute(attrs, NFTA_RULE_TABLE).map(text_of)? == table;
            let chain = attribute(attrs, NFTA_RULE_CHAIN).map(text_of)?;
            let handle = u64_be(attribute(attrs, NFTA_RULE_HANDLE)?)?;
            is_of_table.then_some((chain, handle))
        },
    )
}

pub(super) fn u32_be(payload: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(payload.get(..4)?.try_into().ok()?))
}

pub(super) fn u64_be(payload: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(payload.get(..8)?.try_into().ok()?))
}
