//! headcni-daemon: the node agent.
//!
//! `lifecycle` starts and stops it, `tasks` ties the controllers of `crates/node` together. Pods start,
//! run and stop without it. After a restart it rebuilds its state from the disk and the kernel.
//!
//! Blocking calls run off the runtime's thread.

pub mod admin;
pub mod cli;
pub mod connections;
pub mod instance_lock;
pub mod lifecycle;
pub mod logging;
pub mod socket;
pub mod systemd;
pub mod tasks;
pub mod uninstall;
