//! Client of tailscaled's `LocalAPI`: HTTP over a unix socket.
//!
//! Every call has a timeout, every response a size limit, and invalid fields of a response are empty.
//! Upstream does not promise a stable API; this was tested with tailscaled 1.102.

mod bus;
mod error;
mod filter;
mod join;
mod key;
mod lenient;
mod notify;
mod prefs;
mod probes;
mod status;
mod transport;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use transport::{Call, Transport};

pub use bus::{BusEvent, BusWatcher, IpnBus};
pub use error::Error;
pub use filter::{Coverage, PacketFilter};
pub use join::{JoinError, LoginError, StartOptions};
pub use key::AuthKey;
pub use notify::Notify;
pub use prefs::{MaskedPrefs, NetfilterMode, Prefs, StartPrefs};
pub use probes::{PingResult, PingType};
pub use status::{BackendState, PeerStatus, Status};

/// Most calls take a millisecond; on a busy host they can take a second.
const TIMEOUT: Duration = Duration::from_secs(10);
/// A logout contacts the control server.
const LOGOUT_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub struct LocalApi {
    transport: Transport,
}

impl LocalApi {
    /// Does not connect yet.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self {
            transport: Transport::new(socket.into(), TIMEOUT),
        }
    }

    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self {
            transport: Transport::new(self.socket().to_owned(), timeout),
        }
    }

    pub fn socket(&self) -> &Path {
        self.transport.socket()
    }

    pub async fn status(&self) -> Result<Status, Error> {
        let value = self.json(Call::get("status")).await?;
        Ok(Status::parse(&value))
    }

    pub async fn prefs(&self) -> Result<Prefs, Error> {
        let value = self.json(Call::get("prefs")).await?;
        Ok(Prefs::parse(&value))
    }

    /// Returns all prefs after the change.
    pub async fn edit_prefs(&self, prefs: &MaskedPrefs) -> Result<Prefs, Error> {
        let call = Call::patch("prefs").with_body(&prefs.to_json());
        Ok(Prefs::parse(&self.json(call).await?))
    }

    /// Leaves the tailnet. tailscaled deletes the profile with all prefs.
    pub async fn logout(&self) -> Result<(), Error> {
        let call = Call::post("logout").with_timeout(LOGOUT_TIMEOUT);
        self.transport.call(call).await?;
        Ok(())
    }

    /// The rules of the tailnet policy for traffic to this node.
    pub async fn packet_filter(&self) -> Result<PacketFilter, Error> {
        let value = self.json(Call::post("debug-packet-filter-rules")).await?;
        Ok(PacketFilter::parse(&value))
    }

    /// Opens the IPN bus once.
    pub async fn open_bus(&self) -> Result<IpnBus, Error> {
        IpnBus::open(&self.transport).await
    }

    /// Watches the IPN bus, and reopens it with a back-off whenever it closes. Needs a tokio runtime.
    pub fn watch_bus(&self) -> BusWatcher {
        BusWatcher::start(self.transport.clone())
    }

    async fn json(&self, call: Call) -> Result<Value, Error> {
        let name = call.name();
        let body = self.transport.call(call).await?;
        serde_json::from_slice(&body)
            .map_err(|source| Error::InvalidResponse { call: name, source })
    }
}
