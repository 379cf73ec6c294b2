//! The underlay, its sniffer, ping streams and real tailscaleds.

#![expect(
    clippy::unwrap_used,
    reason = "a failure outside the code under test must fail the test"
)]

mod leaks;
mod ping_stream;
mod sniffer;
mod tailscaled;
mod underlay;
