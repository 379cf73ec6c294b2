//! CNI configuration files on real nodes.

#![expect(
    clippy::unwrap_used,
    reason = "a failure outside the code under test must fail the test"
)]

mod after_reboot;
mod child_process;
mod controller;
mod drift_repair;
mod fixture;
mod killed_reconcile;
mod other_conflists;
mod repeated_overwrites;
mod unwritable_paths;
mod written_conflist;
