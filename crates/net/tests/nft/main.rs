//! nftables and conntrack in a real kernel: what netlink writes, `nft` must read, and packets obey.
//!
//! Everything happens in lab nodes; the machine's own ruleset is never touched.

#![expect(
    clippy::unwrap_used,
    reason = "these are tests, and clippy takes only the functions marked so for tests"
)]

mod covered;
mod drops;
mod elements;
mod flows;
mod host_ports;
mod ruleset;
mod scene;
mod support;
mod traffic;
