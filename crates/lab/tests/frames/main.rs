//! Positive controls for the plugin's attack tests: on a victim without defences each attack works.

#![expect(
    clippy::unwrap_used,
    reason = "a failure outside the code under test must fail the test"
)]

mod capture;
mod dhcp;
mod ipv4_attacks;
mod ipv6_attacks;
mod wire;
