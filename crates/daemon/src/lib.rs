//! headcni-daemon: the agent that makes a machine a node of the cluster's network.
//!
//! It finds out which addresses the node's pods get, writes the CNI configuration, keeps the
//! network that all pods share in place, knows every pod, and tells how all that goes. Pods start,
//! run and end without it: whatever it does, it does again after a restart, from what the disk and
//! the kernel say.
//!
//! Decisions are pure functions; what acts on them is thin. Calls that block, the kernel's above
//! all, are made off the runtime's thread.

pub mod admin;
pub mod cli;
pub mod connections;
pub mod instance;
pub mod lifecycle;
pub mod logging;
pub mod socket;
pub mod systemd;
pub mod tasks;
pub mod uninstall;
