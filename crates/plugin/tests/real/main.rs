//! `headcni` with real components: the reference plugins, cnitool, containerd and podman, on lab
//! nodes.
//!
//! What happens when things go wrong in the middle is tested beside this, in `faults`.

#![expect(
    clippy::unwrap_used,
    reason = "these are tests, and clippy takes only the functions marked so for tests"
)]

mod apart;
mod bad_input;
mod bad_subnets;
mod cgroups;
mod chain;
mod check;
mod collect;
mod containerd;
mod delegate;
mod documents;
mod existing;
mod log;
mod podman;
mod recorder;
mod requests;
mod saved;
mod shape;
mod status;
mod subnets;
mod support;
mod versions;
mod witness;
