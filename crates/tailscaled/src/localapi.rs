//! A tailscaled by its `LocalAPI`: HTTP over a unix socket.
//!
//! Only what it says is read here; what is to be done about it is decided elsewhere. A call has a
//! time limit, an answer an end, and what makes no sense in it is left out.
//!
//! The API is not promised to be stable. It was tried with tailscaled 1.102.

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

pub use bus::{Bus, Event, Watch};
pub use error::Error;
pub use filter::{PacketFilter, Reach};
pub use join::{JoinError, Refusal, Start};
pub use key::AuthKey;
pub use notify::Notify;
pub use prefs::{KeptPrefs, NetfilterMode, Prefs, PrefsEdit, StartPrefs};
pub use probes::{PingKind, Pong, Relay, WhoIs};
pub use status::{Member, State, Status};

/// Most calls take a millisecond; on a host that is busy they can take a thousand of them.
const LIMIT: Duration = Duration::from_secs(10);
/// A logout asks the server.
const LOGOUT_LIMIT: Duration = Duration::from_secs(30);

/// A tailscaled.
#[derive(Clone, Debug)]
pub struct LocalApi {
    transport: Transport,
}

impl LocalApi {
    /// The one that listens at a socket, now or later.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self {
            transport: Transport::new(socket.into(), LIMIT),
        }
    }

    /// The same one, with another time limit for calls.
    #[must_use]
    pub fn within(&self, limit: Duration) -> Self {
        Self {
            transport: Transport::new(self.socket().to_owned(), limit),
        }
    }

    /// Its socket.
    pub fn socket(&self) -> &Path {
        self.transport.socket()
    }

    /// How it is, and who else there is.
    pub async fn status(&self) -> Result<Status, Error> {
        let value = self.json(Call::get("status")).await?;
        Ok(Status::read(&value))
    }

    /// What it was told.
    pub async fn prefs(&self) -> Result<Prefs, Error> {
        let value = self.json(Call::get("prefs")).await?;
        Ok(Prefs::read(&value))
    }

    /// Tells it something else; what it was told altogether is returned.
    pub async fn edit_prefs(&self, edit: &PrefsEdit) -> Result<Prefs, Error> {
        let value = self.json(Call::patch("prefs").with(&edit.patch())).await?;
        Ok(Prefs::read(&value))
    }

    /// Leaves the mesh, and forgets all that it was told.
    pub async fn logout(&self) -> Result<(), Error> {
        let call = Call::post("logout").within(LOGOUT_LIMIT);
        self.transport.call(call).await?;
        Ok(())
    }

    /// What the mesh's policy lets through to this node.
    pub async fn packet_filter(&self) -> Result<PacketFilter, Error> {
        let value = self.json(Call::post("debug-packet-filter-rules")).await?;
        Ok(PacketFilter::read(&value))
    }

    /// Opens the event bus once.
    pub async fn watch(&self) -> Result<Bus, Error> {
        Bus::open(&self.transport).await
    }

    /// Opens the event bus again whenever it closes. Needs a runtime.
    pub fn watch_always(&self) -> Watch {
        Watch::start(self.transport.clone())
    }

    async fn json(&self, call: Call) -> Result<Value, Error> {
        let name = call.name();
        let body = self.transport.call(call).await?;
        serde_json::from_slice(&body).map_err(|source| Error::Strange { call: name, source })
    }
}
