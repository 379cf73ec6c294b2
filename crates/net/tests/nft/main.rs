//! nftables and conntrack in a real kernel: what netlink writes, `nft` must read, and packets obey.
//!
//! Everything happens in lab nodes; the machine's own ruleset is never touched.

#![expect(
    clippy::unwrap_used,
    reason = "these are tests, and clippy takes only the functions marked so for tests"
)]

mod chains;
mod covered;
mod drops;
mod elements;
mod flows;
mod guard;
mod host_ports;
mod replaced;
mod ruleset;
mod scene;
mod support;
mod traffic;
