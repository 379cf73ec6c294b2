//! `headcni` with real components: the reference plugins, cnitool and containerd, on lab nodes.
//!
//! What happens when things go wrong in the middle is tested beside this, in `faults`.

#![expect(
    clippy::unwrap_used,
    reason = "these are tests, and clippy takes only the functions marked so for tests"
)]

mod apart;
mod chain;
mod check;
mod delegate;
mod existing;
mod recorder;
mod status;
mod subnets;
mod support;
mod versions;
mod witness;
