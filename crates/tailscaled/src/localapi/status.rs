//! What a tailscaled says about itself and the members that it knows.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use jiff::Timestamp;
use serde_json::Value;

use super::error::clean;
use super::join::Refusal;
use super::lenient::Fields;

/// How far a tailscaled has come.
///
/// <https://pkg.go.dev/tailscale.com/ipn#State>
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It has only just started, or waits for the server.
    NoState,
    /// Somebody else uses it, which happens on Windows only.
    InUseOtherUser,
    /// It has to log in.
    NeedsLogin,
    /// An administrator has to let it in.
    NeedsMachineAuth,
    /// It was told to stop.
    Stopped,
    /// It is on its way.
    Starting,
    /// It is a member.
    Running,
    /// We have never heard of it.
    Other(String),
}

impl State {
    const NAMED: [(Self, &str); 7] = [
        (Self::NoState, "NoState"),
        (Self::InUseOtherUser, "InUseOtherUser"),
        (Self::NeedsLogin, "NeedsLogin"),
        (Self::NeedsMachineAuth, "NeedsMachineAuth"),
        (Self::Stopped, "Stopped"),
        (Self::Starting, "Starting"),
        (Self::Running, "Running"),
    ];

    pub(super) fn named(name: &str) -> Self {
        let found = Self::NAMED.into_iter().find(|(_, known)| *known == name);
        found.map_or_else(|| Self::Other(name.to_owned()), |(state, _)| state)
    }

    /// As the event bus has it.
    pub(super) fn numbered(number: u64) -> Self {
        let found = usize::try_from(number)
            .ok()
            .and_then(|nth| Self::NAMED.get(nth));
        found.map_or_else(
            || Self::Other(number.to_string()),
            |(state, _)| state.clone(),
        )
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = Self::NAMED.iter().find(|(state, _)| state == self);
        match (self, found) {
            (Self::Other(name), _) => f.write_str(name),
            (_, Some((_, name))) => f.write_str(name),
            (_, None) => f.write_str("unknown"),
        }
    }
}

/// A tailscaled and its mesh at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its version.
    pub version: String,
    /// How far it has come.
    pub state: State,
    /// Whether it has a key from an earlier login.
    pub has_node_key: bool,
    /// Where a person can let it in, if it waits for that.
    pub auth_url: Option<String>,
    /// What is wrong, in its own words.
    pub health: Vec<String>,
    /// Its addresses in the mesh.
    pub addresses: Vec<IpAddr>,
    /// Whether it has an interface that the kernel sends packets by. None if it does not say.
    pub has_tun: Option<bool>,
    /// Itself, as a member.
    pub this: Member,
    /// The other members that it may know of.
    pub peers: Vec<Member>,
    /// Members that were told in a way that we don't understand.
    pub unreadable_peers: usize,
    /// What names of members end in, without dots around it.
    pub domain: Option<String>,
}

/// A member of the mesh.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Its lasting id.
    pub id: String,
    /// Its number at the server.
    pub node_id: Option<u64>,
    /// Its public key, as in `nodekey:…`.
    pub key: String,
    /// The name that it gave itself.
    pub host_name: String,
    /// The name that the server gave it, with a dot at its end.
    pub dns_name: String,
    /// Its addresses in the mesh.
    pub addresses: Vec<IpAddr>,
    /// The networks that packets may have as their source or destination.
    pub allowed: Vec<IpNet>,
    /// The networks that it serves at the moment.
    pub served: Vec<IpNet>,
    /// Its tags.
    pub tags: Vec<String>,
    /// Where it may be reached without a relay.
    pub endpoints: Vec<SocketAddr>,
    /// Where packets go at the moment, unless they go by a relay.
    pub direct: Option<SocketAddr>,
    /// Its home relay, used or not.
    pub relay: String,
    /// What came from it.
    pub received_bytes: u64,
    /// What went to it.
    pub sent_bytes: u64,
    /// When a session with it was last agreed on.
    pub last_handshake: Option<Timestamp>,
    /// Whether the server has a connection to it.
    pub is_online: bool,
    /// Whether something was sent to it lately.
    pub is_active: bool,
    /// Whether its key has expired.
    pub is_expired: bool,
    /// When its key expires.
    pub key_expiry: Option<Timestamp>,
}

impl Status {
    pub(super) fn read(value: &Value) -> Self {
        let status = Fields::of(value);
        let peers = status.value("Peer").and_then(Value::as_object);
        let told = peers.into_iter().flatten();
        let (good, bad): (Vec<_>, Vec<_>) = told
            .map(|(_, peer)| Member::read(peer))
            .partition(Option::is_some);
        let domain = status.within("CurrentTailnet").some_text("MagicDNSSuffix");
        Self {
            version: status.text("Version"),
            state: State::named(&status.text("BackendState")),
            has_node_key: status.is("HaveNodeKey"),
            auth_url: status.some_text("AuthURL"),
            health: status
                .texts("Health")
                .iter()
                .map(|text| clean(text))
                .collect(),
            addresses: status.all("TailscaleIPs"),
            has_tun: status.typed("TUN"),
            this: status
                .value("Self")
                .and_then(Member::read)
                .unwrap_or_default(),
            peers: good.into_iter().flatten().collect(),
            unreadable_peers: bad.len(),
            domain: domain.or_else(|| status.some_text("MagicDNSSuffix")),
        }
    }

    /// Whether the server wants a login of it, whatever its state is: one that was a member goes on by what
    /// it knew.
    pub fn is_turned_away(&self) -> bool {
        let is_refused = |text| Refusal::of(text).is_of_server();
        !self.this.is_online
            && (self.auth_url.is_some() || self.login_error().is_some_and(is_refused))
    }

    /// Why the last login failed, if it did.
    pub fn login_error(&self) -> Option<&str> {
        self.health.iter().find_map(|text| login_error(text))
    }
}

impl Member {
    /// One without a key is nobody.
    fn read(value: &Value) -> Option<Self> {
        let member = Fields::of(value);
        Some(Self {
            id: member.text("ID"),
            node_id: Some(member.number("NodeID")).filter(|id| *id != 0),
            key: member.some_text("PublicKey")?,
            host_name: member.text("HostName"),
            dns_name: member.text("DNSName"),
            addresses: member.all("TailscaleIPs"),
            allowed: member.networks("AllowedIPs"),
            served: member.networks("PrimaryRoutes"),
            tags: member.texts("Tags"),
            endpoints: member.all("Addrs"),
            direct: member.parsed("CurAddr"),
            relay: member.text("Relay"),
            received_bytes: member.number("RxBytes"),
            sent_bytes: member.number("TxBytes"),
            last_handshake: member.time("LastHandshake"),
            is_online: member.is("Online"),
            is_active: member.is("Active"),
            is_expired: member.is("Expired"),
            key_expiry: member.time("KeyExpiry"),
        })
    }
}

/// The part of a complaint that says why a login failed. There is no better way to learn of it.
///
/// <https://github.com/tailscale/tailscale/blob/v1.102.5/health/warnings.go#L106>
pub(super) fn login_error(text: &str) -> Option<&str> {
    let (_, error) = text.split_once("last login error was: ")?;
    Some(error.trim()).filter(|error| !error.is_empty())
}

#[cfg(test)]
mod tests;
