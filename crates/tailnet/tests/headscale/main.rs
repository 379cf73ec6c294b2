//! The client against real Headscales of every generation, with a real tailscaled as a node; and
//! against a fake where a real one can't be made to fail like that.

mod fake;
mod faults;
mod joined;
mod proxy;
mod server;
mod stage;
mod trouble;
