//! Nodes of several kinds, by files as their tools write them, and what is found out about each.

#![expect(
    clippy::unwrap_used,
    reason = "whatever fails outside the code under test shall end the test"
)]

mod hostile;
mod kubernetes;
mod ladder;
mod scene;
