//! What runs the mesh: [`localapi`] talks to a tailscaled, [`tailscaled`] runs one, and [`headscale`]
//! talks to the server.
//!
//! Everything here waits for others, so it is async; it decides nothing about the node. What comes
//! from a server or a peer is a stranger's word: it is parsed, never trusted.

pub mod headscale;
pub mod localapi;
pub mod tailscaled;
