//! The IPAM plugin as a program: beside the real host-local, killed, crowded, rebooted, misused.
//!
//! Every test has a node and a data directory of its own. What the unit tests of the store prove
//! with its own types is proven here from outside: by processes, files and system calls.

#![expect(
    clippy::unwrap_used,
    reason = "whatever fails outside the code under test shall end the test"
)]

mod bad_input;
mod callers;
mod cost;
mod crowd;
mod disk;
mod failing;
mod foreign;
mod index;
mod interop;
mod kill;
mod killing;
mod log;
mod named;
mod ranges;
mod reboot;
mod results;
mod store;
mod takeover;
mod verbs;
