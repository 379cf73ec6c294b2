//! `headcni` with real components: the reference plugins, cnitool, containerd and podman, on lab
//! nodes.
//!
//! What happens when things go wrong in the middle is tested beside this, in `faults`.

#![expect(
    clippy::unwrap_used,
    reason = "these are tests, and clippy takes only the functions marked so for tests"
)]

mod bad_input;
mod bad_subnets;
mod calls;
mod cgroups;
mod chain;
mod check;
mod containerd;
mod delegate;
mod delegate_input;
mod documents;
mod existing_interface;
mod gc;
mod isolation;
mod log;
mod podman;
mod recorded_config;
mod requests;
mod result_overrides;
mod status;
mod subnets;
mod versions;
mod witness_plugin;
