//! The Linux kernel's network, by netlink and `/proc/sys`. Only whole nftables scripts go to another
//! process, `nft`.
//!
//! [`Socket`] sends a [`Batch`] of messages in one system call; links, addresses, routes, rules,
//! neighbours and qdiscs are values that add themselves to a batch. A socket belongs to the netns it
//! was opened in, whatever netns its thread enters later. Everything blocks, and nothing here
//! decides: the desired state is the caller's.

#![cfg(target_os = "linux")]

pub mod conntrack;
mod error;
pub mod ethtool;
pub mod monitor;
mod netlink;
mod netns;
pub mod nft;
pub mod program;
mod rtnl;
mod special;
pub mod sysctl;

pub use error::NetError;
pub use netlink::{Batch, Socket, Tolerated};
pub use netns::{Netns, VisitError};
pub use rtnl::{
    Address, DestinationRule, Ipv4Conf, Link, LinkSettings, Mac, Mark, Neighbour, PROTO_HEADCNI,
    PROTO_RA, ParseMacError, Route, RouteKind, Rule, RuleAction, TABLE_MAIN, TokenBucket, VethEnd,
    VethPair, addresses, count_bridge_ports, delete_group, delete_link, destination_rules, link,
    links, move_to_group, permanent_neighbours, routes, rules, usable_addresses,
};
pub use rustix::io::Errno;
pub use special::{SpecialPurpose, special_purpose};
