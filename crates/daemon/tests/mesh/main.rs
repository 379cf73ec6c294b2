//! The whole of it: real daemons, a real tailscaled each, a real Headscale, and pods on different nodes.

#![expect(
    clippy::unwrap_used,
    reason = "these are tests, and clippy takes only the functions marked so for tests"
)]

mod apart;
mod bridge;
mod conditions;
mod contained;
mod dns;
mod faults;
mod generations;
mod hosts;
mod keys;
mod moved;
mod outside;
mod pods;
mod proxied;
mod scene;
mod secrets;
mod talk;
mod told;
