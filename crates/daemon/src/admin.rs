//! The admin server: `/healthz`, `/ready`, `/metrics`, and `/debug/pprof` if configured.
//!
//! It starts first, so probes are answered from the beginning. It only reads. Any pod can reach it,
//! so requests are bounded in number, time and size.

mod heartbeat;
mod profile;
mod routes;
mod server;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use node_core::conditions::Conditions;
use node_core::metrics::Metrics;

pub use heartbeat::Heartbeat;
pub use server::{LIMITS, Server, start};

/// What the admin server reads.
#[derive(Clone, Debug)]
pub struct AdminContext {
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
    #[error(
        "listen on {0} for health and metrics: the address is in use; find the program with \
         `ss -ltnp`, or set monitoring.address to another one"
    )]
    InUse(SocketAddr),
    #[error(
        "listen on {0} for health and metrics: no interface has this address; set \
         monitoring.address to one of this machine's"
    )]
    NoSuchAddress(SocketAddr),
    #[error("listen on {address} for health and metrics")]
    Listen {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
}

impl AdminError {
    fn new(address: SocketAddr, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::InUse(address),
            io::ErrorKind::AddrNotAvailable => Self::NoSuchAddress(address),
            _ => Self::Listen { address, source },
        }
    }

    /// Whether a retry can succeed: the other program ends, or the address is added.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::InUse(_) | Self::NoSuchAddress(_))
    }
}
