//! The Linux kernel's network, spoken to in netlink and in `/proc/sys`; only whole nftables scripts
//! are given to another process. [`watch`] tells what others change, and [`ethtool`] what a link can
//! do.
//!
//! [`Socket`] sends a [`Batch`] of messages in one system call; links, addresses, routes, rules,
//! neighbours and qdiscs are values that add themselves to a batch. A socket belongs to the
//! namespace it was opened in, whatever namespace the thread is in later. Everything blocks, and
//! nothing here decides: what is wanted is the caller's business.

#![cfg(target_os = "linux")]

mod address;
mod batch;
pub mod conntrack;
mod error;
pub mod ethtool;
mod family;
pub mod host_ports;
mod link;
mod mac;
mod neighbour;
mod netns;
pub mod nft;
pub mod program;
mod qdisc;
mod read;
mod route;
mod rule;
pub mod ruleset;
mod socket;
pub mod sysctl;
pub mod watch;

pub use address::{Address, addresses, settled_addresses};
pub use batch::Batch;
pub use error::NetError;
pub use link::{
    End, Ipv4Conf, Link, NewVeth, Settings, delete_group, delete_link, link, links, move_to_group,
    ports_of,
};
pub use mac::{Mac, NoMac};
pub use neighbour::{Neighbour, permanent_neighbours};
pub use netns::{Netns, VisitError, ensure_named, remove_named};
pub use qdisc::TokenBucket;
pub use route::{PROTO_HEADCNI, PROTO_ROUTER, Route, RouteKind, TABLE_MAIN, routes};
pub use rule::{DestinationRule, Mark, Rule, RuleAction, destination_rules, rules};
pub use rustix::io::Errno;
pub use socket::{Socket, Tolerated};
