//! The admin server: `/healthz`, `/ready`, `/metrics`, and on request `/debug/pprof`.
//!
//! It is the first thing to run, so that somebody can always ask. It reads what
//! others report and decides nothing. Whoever asks is a stranger: requests are small and quick, or
//! they are cut off.

mod client;
mod heartbeat;
mod keep;
mod profile;
mod routes;
mod server;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use node_core::conditions::Conditions;
use node_core::metrics::Metrics;

pub use heartbeat::Heartbeat;
pub use keep::begin;
pub use server::{Limits, Server};

/// Where answers come from.
#[derive(Clone, Debug)]
pub struct Sources {
    /// For `/healthz`.
    pub heartbeat: Arc<Heartbeat>,
    /// For `/ready`.
    pub conditions: Arc<Conditions>,
    /// For `/metrics`.
    pub metrics: Arc<Metrics>,
}

/// Why there is no admin server.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// Another program listens there.
    #[error(
        "listen on {0} for health and metrics: another program does; `ss -ltnp` names it, and \
         monitoring.address takes another address"
    )]
    InUse(SocketAddr),
    /// The machine has no such address, or not yet.
    #[error(
        "listen on {0} for health and metrics: no interface has this address; set \
         monitoring.address to one of this machine's"
    )]
    NoSuchAddress(SocketAddr),
    /// Anything else.
    #[error("listen on {address} for health and metrics")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the kernel says.
        #[source]
        source: io::Error,
    },
}

impl AdminError {
    fn of(address: SocketAddr, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::InUse(address),
            io::ErrorKind::AddrNotAvailable => Self::NoSuchAddress(address),
            _ => Self::Listen { address, source },
        }
    }

    /// Whether it may pass by itself: the other program ends, the address comes.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::InUse(_) | Self::NoSuchAddress(_))
    }
}
