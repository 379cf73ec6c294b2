//! Formats of headcni that cross a process border, and where they live.
//!
//! Whoever writes such a format and whoever reads it link this crate, so that the two can't
//! disagree. It decides nothing and touches no network.

#[cfg(unix)]
pub mod client;
pub mod event;
#[cfg(unix)]
pub mod http;
pub mod messages;
pub mod paths;
pub mod subnet_env;

pub use subnet_env::{Family, Known, NodeSubnet, SubnetEnv, SubnetEnvError};
