//! What tests of the mesh stand on: the underlay, those who watch it, and real members.

mod sniffer;
mod underlay;
