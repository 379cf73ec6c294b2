//! nftables: scripts by the program `nft`, elements of sets and maps by netlink.
//!
//! Rules are text that people can read and `nft --check` can verify; they are installed once, so the
//! few milliseconds of a process don't matter. Elements change with every pod and take microseconds.
//! All tables are of the family `inet`.
//!
//! Constants: `include/uapi/linux/netfilter/nf_tables.h` and `nfnetlink.h`.

use crate::netlink::Writer;
pub use crate::netlink::{ip_of, octets};

mod chain;
mod interval;
mod set;
mod table;
mod text;
mod transaction;

pub use chain::{Chain, HOOK_FORWARD, Policy, TableFamily, chain, chains, rule_handles};
pub use interval::Interval;
pub use set::{Element, Set, concatenate, element, elements, intervals};
pub use table::{TableInfo, generation, table};
pub use text::{NftError, is_installed, run};
pub use transaction::{Existing, Transaction, is_outdated, retry_outdated};

/// `NFNL_SUBSYS_NFTABLES`
const SUBSYSTEM: u16 = 10;
const NFPROTO_INET: u8 = 1;

/// `NFT_MSG_*`
mod message {
    const fn nftables(number: u16) -> u16 {
        super::SUBSYSTEM << 8 | number
    }
    pub(super) const GETTABLE: u16 = nftables(1);
    pub(super) const GETCHAIN: u16 = nftables(4);
    pub(super) const GETRULE: u16 = nftables(7);
    pub(super) const GETSET: u16 = nftables(10);
    pub(super) const NEWSETELEM: u16 = nftables(12);
    pub(super) const GETSETELEM: u16 = nftables(13);
    pub(super) const DELSETELEM: u16 = nftables(14);
    pub(super) const GETGEN: u16 = nftables(16);
}

/// `struct nfgenmsg` of the family `inet`.
fn write_header(message: &mut Writer<'_>) {
    message.fixed(&[NFPROTO_INET, 0, 0, 0]);
}

/// Length of `struct nfgenmsg`.
const HEADER_LEN: usize = 4;
