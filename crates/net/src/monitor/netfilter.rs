//! nftables notifications.

use super::{Change, TablePart, bit};
use crate::netlink::{Message, attribute, text_of};

/// `NFNLGRP_NFTABLES`, `include/uapi/linux/netfilter/nfnetlink.h`.
pub(super) const GROUPS: u32 = bit(7);

const NFNL_SUBSYS_NFTABLES: u16 = 10;
/// `struct nfgenmsg`
const HEADER_LEN: usize = 4;
/// `NFTA_TABLE_NAME`, `NFTA_CHAIN_TABLE`, `NFTA_RULE_TABLE`, `NFTA_SET_TABLE`
const TABLE: u16 = 1;
const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_CHAIN_HOOK: u16 = 4;
const NFTA_RULE_CHAIN: u16 = 2;

pub(super) fn read(message: &Message<'_>) -> Option<Change> {
    if message.kind >> 8 != NFNL_SUBSYS_NFTABLES {
        return None;
    }
    let attrs = message.payload.get(HEADER_LEN..)?;
    let text = |kind| attribute(attrs, kind).map(text_of);
    // NFT_MSG_NEW* and NFT_MSG_DEL*
    let part = match message.kind & 0xff {
        0 | 2 => TablePart::Itself,
        3 | 5 if attribute(attrs, NFTA_CHAIN_HOOK).is_some() => TablePart::BaseChain,
        3 | 5 => TablePart::Chain(text(NFTA_CHAIN_NAME)?),
        6 | 8 => TablePart::Rule(text(NFTA_RULE_CHAIN)?),
        9 | 11 | 12 | 14 => TablePart::Set,
        _ => return None,
    };
    Some(Change::Table {
        table: text(TABLE)?,
        part,
    })
}
