//! The client against real Headscales of every API generation with a real tailscaled as a node, and
//! against a fake server where a real one does not fail that way.

#![expect(clippy::unwrap_used, reason = "a failed setup ends the test")]

mod api_generations;
mod certificates;
mod connection_errors;
mod error_responses;
mod harness;
mod node_lifecycle;
mod proxy;
