//! The whole of it: real daemons, a real tailscaled each, a real Headscale, and pods on different nodes.

mod pods;
mod talk;
mod turn;
