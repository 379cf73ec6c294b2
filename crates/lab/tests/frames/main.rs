//! Frames made by hand do to a kernel what they say.
//!
//! A test that an attack fails is worth something only if the attack would work on a victim
//! without defences. Here it does.

#![expect(
    clippy::unwrap_used,
    reason = "these are tests, and clippy takes only the functions marked so for tests"
)]

mod capture;
mod dhcp;
mod ipv4;
mod ipv6;
mod stage;
