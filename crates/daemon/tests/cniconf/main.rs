//! The CNI configuration on real nodes: written, accepted by the real plugins, kept, put away.

#![expect(
    clippy::unwrap_used,
    reason = "whatever fails outside the code under test shall end the test"
)]

mod boots;
mod disks;
mod documents;
mod drift;
mod fights;
mod inside;
mod kept;
mod kill;
mod others;
mod scene;
