//! The client against real Headscales of every generation, with a real tailscaled as a node; and
//! against a fake where a real one can't be made to fail like that.

#![expect(
    clippy::unwrap_used,
    reason = "whatever fails outside the code under test shall end the test"
)]

mod certificates;
mod fake;
mod faults;
mod joined;
mod proxy;
mod server;
mod stage;
mod trouble;
