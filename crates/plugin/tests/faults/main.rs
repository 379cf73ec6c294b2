//! What remains when things go wrong: nothing.
//!
//! Every test makes a node of its own, breaks something on it, and compares the node with what it
//! was before. The plugins are the real ones, but for scripts that fail in ways that no real one
//! can be made to.

#![expect(
    clippy::unwrap_used,
    reason = "whatever fails outside the code under test shall end the test"
)]

mod boots;
mod crowd;
mod disk;
mod edited;
mod foreign;
mod gone;
mod kill_add;
mod kill_del;
mod killing;
mod names;
mod orphans;
mod pipes;
mod retry;
mod rollback;
mod scene;
