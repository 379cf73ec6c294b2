//! What a hostile pod sends harms neither other pods nor the node.
//!
//! Each attack is shown to work where what stops it is taken away.

mod attacker;
mod dhcp;
mod forged;
mod loopback;
mod multicast;
mod neighbours;
mod redirects;
mod routers;
