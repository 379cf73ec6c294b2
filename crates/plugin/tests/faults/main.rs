//! What remains when things go wrong: nothing.
//!
//! Every test makes a node of its own, breaks something on it, and compares the node with what it
//! was before. The plugins are the real ones, but for scripts that fail in ways that no real one
//! can be made to.

#![expect(
    clippy::unwrap_used,
    reason = "whatever fails outside the code under test shall end the test"
)]

mod changed_config;
mod concurrency;
mod del_errors;
mod del_missing;
mod disk;
mod foreign_files;
mod kill_add;
mod kill_del;
mod kill_points;
mod names;
mod networks;
mod rollback;
mod stale_records;
mod stdio;
mod surviving_delegates;
