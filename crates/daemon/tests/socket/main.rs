//! The daemon's socket, as the real plugin and hostile clients meet it.

#![expect(
    clippy::unwrap_used,
    reason = "whatever fails outside the code under test shall end the test"
)]

mod asks;
mod cost;
mod events;
mod hostile;
mod lag;
mod scene;
mod server;
mod silent;
mod spool;
