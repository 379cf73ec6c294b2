//! The program `headcni-ipam`: with the real host-local, under faults, load and reboots.
//!
//! Every test has its own node and data directory.

#![expect(
    clippy::unwrap_used,
    reason = "a failure outside the code under test ends the test"
)]

mod address_files;
mod concurrency;
mod crashes;
mod delegation;
mod documents;
mod faults;
mod foreign_files;
mod full_disk;
mod host_local;
mod index_rebuild;
mod invalid_input;
mod io_errors;
mod log;
mod migration;
mod ranges;
mod reboot;
mod results;
mod store_node;
mod syscall_cost;
mod verbs;
