//! Wire formats that cross a process border: the daemon's API, CNI events, `subnet.env`, paths.
//!
//! Both sides of each format link this crate, so they can't disagree.

#[cfg(unix)]
pub mod client;
pub mod event;
#[cfg(unix)]
pub mod http;
pub mod messages;
pub mod paths;
pub mod subnet_env;

pub use subnet_env::{Family, Known, NodeSubnet, SubnetEnv, SubnetEnvError};
