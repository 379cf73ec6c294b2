//! The daemon's API on its Unix socket, as the plugin, clients and hostile clients use it.

#![expect(
    clippy::unwrap_used,
    reason = "a failure outside the code under test ends the test"
)]

mod availability;
mod events;
mod limits;
mod queries;
mod scenario;
mod server;
mod syscalls;
