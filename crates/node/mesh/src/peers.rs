//! The other nodes of the tailnet: which of their routes are accepted, and on whose authority.

pub(crate) mod handshake_warmup;
mod ownership;
mod prefix_map;
pub mod select;
