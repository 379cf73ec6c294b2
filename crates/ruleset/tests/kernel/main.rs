//! Our tables in a real kernel: what is installed, what `nft` lists, and what packets meet.
//!
//! Every test has nodes of its own; the machine's own ruleset is never touched.

#![expect(
    clippy::unwrap_used,
    reason = "clippy exempts only functions marked as tests"
)]

mod cover;
mod harness;
mod host_ports;
mod install;
mod mesh_only;
mod nat;
mod pod_traffic;
mod replace;
mod udp_flows;
