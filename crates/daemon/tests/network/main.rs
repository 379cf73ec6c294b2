//! The host network of pods on lab nodes, with pods of the real plugin.

#![expect(
    clippy::unwrap_used,
    reason = "a failure outside the code under test must fail the test"
)]

mod controller;
mod firewalls;
mod first_reconcile;
mod fixture;
mod link_flaps;
mod mesh;
mod restored_state;
mod uninstall;
