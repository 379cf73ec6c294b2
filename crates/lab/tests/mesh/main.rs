//! What tests of the mesh stand on: the underlay, those who watch it, and real members.

#![expect(
    clippy::unwrap_used,
    reason = "these are tests, and clippy takes only the functions marked so for tests"
)]

mod measuring;
mod members;
mod sniffer;
mod underlay;
