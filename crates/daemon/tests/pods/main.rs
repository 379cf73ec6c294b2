//! The pods of a node as the daemon sees them, with real namespaces and real calls of the plugin.

#![expect(
    clippy::unwrap_used,
    reason = "whatever fails outside the code under test shall end the test"
)]

mod agent;
mod boots;
mod bridge;
mod clock;
mod dead;
mod failing;
mod flight;
mod hidden;
mod kept;
mod killed;
mod known;
mod leaked;
mod scene;
mod stamps;
mod wiped;
