//! The status of tailscaled and of the peers that it knows.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use jiff::Timestamp;
use serde_json::Value;

use super::error::clean;
use super::join::LoginError;
use super::lenient::LenientObject;

/// <https://pkg.go.dev/tailscale.com/ipn#State>
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendState {
    /// Just started, or waiting for the control server.
    NoState,
    /// Windows only.
    InUseOtherUser,
    NeedsLogin,
    /// An administrator has to approve the node.
    NeedsMachineAuth,
    /// `WantRunning` is false.
    Stopped,
    Starting,
    Running,
    /// Unknown to this version of headcni.
    Other(String),
}

impl BackendState {
    /// In the order of their numbers on the IPN bus.
    const NAMED: [(Self, &str); 7] = [
        (Self::NoState, "NoState"),
        (Self::InUseOtherUser, "InUseOtherUser"),
        (Self::NeedsLogin, "NeedsLogin"),
        (Self::NeedsMachineAuth, "NeedsMachineAuth"),
        (Self::Stopped, "Stopped"),
        (Self::Starting, "Starting"),
        (Self::Running, "Running"),
    ];

    pub(super) fn from_name(name: &str) -> Self {
        let found = Self::NAMED.into_iter().find(|(_, known)| *known == name);
        found.map_or_else(|| Self::Other(name.to_owned()), |(state, _)| state)
    }

    pub(super) fn from_number(number: u64) -> Self {
        let found = usize::try_from(number)
            .ok()
            .and_then(|nth| Self::NAMED.get(nth));
        found.map_or_else(
            || Self::Other(number.to_string()),
            |(state, _)| state.clone(),
        )
    }
}

impl fmt::Display for BackendState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = Self::NAMED.iter().find(|(state, _)| state == self);
        match (self, found) {
            (Self::Other(name), _) => f.write_str(name),
            (_, Some((_, name))) => f.write_str(name),
            (_, None) => f.write_str("unknown"),
        }
    }
}

/// <https://pkg.go.dev/tailscale.com/ipn/ipnstate#Status>
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub version: String,
    pub state: BackendState,
    /// Whether there is a node key from an earlier login.
    pub has_node_key: bool,
    /// The URL for an interactive login, if tailscaled waits for one.
    pub auth_url: Option<String>,
    /// Health warnings.
    pub health: Vec<String>,
    pub addresses: Vec<IpAddr>,
    /// Whether tailscaled has a TUN device. `None` if it does not report it.
    pub has_tun: Option<bool>,
    pub self_node: PeerStatus,
    pub peers: Vec<PeerStatus>,
    /// The number of peers that could not be parsed.
    pub invalid_peers: usize,
    /// The MagicDNS suffix, without a leading or trailing dot.
    pub magic_dns_suffix: Option<String>,
}

/// This node or a peer.
///
/// <https://pkg.go.dev/tailscale.com/ipn/ipnstate#PeerStatus>
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerStatus {
    /// The stable node id.
    pub id: String,
    /// The id at the control server.
    pub node_id: Option<u64>,
    /// As in `nodekey:…`.
    pub public_key: String,
    /// The name that the node reports.
    pub host_name: String,
    /// The name that the control server gave it, with a trailing dot.
    pub dns_name: String,
    pub addresses: Vec<IpAddr>,
    pub allowed_ips: Vec<IpNet>,
    pub primary_routes: Vec<IpNet>,
    pub tags: Vec<String>,
    /// Where packets go if the path is direct.
    pub cur_addr: Option<SocketAddr>,
    /// The home DERP region, whether in use or not.
    pub relay: String,
    pub rx_bytes: u64,
    pub tx_bytes: u64,
    pub last_handshake: Option<Timestamp>,
    /// Whether the control server has a connection to it.
    pub is_online: bool,
    /// Whether there was traffic to it recently.
    pub is_active: bool,
    /// Whether its node key has expired.
    pub is_expired: bool,
    pub key_expiry: Option<Timestamp>,
}

impl Status {
    pub(super) fn parse(value: &Value) -> Self {
        let status = LenientObject::of(value);
        let peers = status.value("Peer").and_then(Value::as_object);
        let peers: Vec<_> = peers
            .into_iter()
            .flatten()
            .map(|(_, peer)| PeerStatus::parse(peer))
            .collect();
        let health: Vec<String> = status.parsed_list("Health");
        let suffix = status
            .object("CurrentTailnet")
            .non_empty_text("MagicDNSSuffix");
        Self {
            version: status.text("Version"),
            state: BackendState::from_name(&status.text("BackendState")),
            has_node_key: status.flag("HaveNodeKey"),
            auth_url: status.non_empty_text("AuthURL"),
            health: health.iter().map(|text| clean(text)).collect(),
            addresses: status.parsed_list("TailscaleIPs"),
            has_tun: status.typed("TUN"),
            self_node: status
                .value("Self")
                .and_then(PeerStatus::parse)
                .unwrap_or_default(),
            invalid_peers: peers.iter().filter(|peer| peer.is_none()).count(),
            peers: peers.into_iter().flatten().collect(),
            magic_dns_suffix: suffix.or_else(|| status.non_empty_text("MagicDNSSuffix")),
        }
    }

    /// Whether the control server wants a new login of this node. The state does not show it: a node
    /// that was logged in continues with its last network map.
    pub fn is_rejected_by_control(&self) -> bool {
        let is_rejection = |text| LoginError::parse(text).is_from_control();
        !self.self_node.is_online
            && (self.auth_url.is_some() || self.login_error().is_some_and(is_rejection))
    }

    /// The last login error, from the health warnings.
    pub fn login_error(&self) -> Option<&str> {
        self.health.iter().find_map(|text| login_error(text))
    }
}

impl PeerStatus {
    /// `None` without a public key.
    fn parse(value: &Value) -> Option<Self> {
        let peer = LenientObject::of(value);
        Some(Self {
            id: peer.text("ID"),
            node_id: Some(peer.number("NodeID")).filter(|id| *id != 0),
            public_key: peer.non_empty_text("PublicKey")?,
            host_name: peer.text("HostName"),
            dns_name: peer.text("DNSName"),
            addresses: peer.parsed_list("TailscaleIPs"),
            allowed_ips: peer.prefixes("AllowedIPs"),
            primary_routes: peer.prefixes("PrimaryRoutes"),
            tags: peer.parsed_list("Tags"),
            cur_addr: peer.parsed("CurAddr"),
            relay: peer.text("Relay"),
            rx_bytes: peer.number("RxBytes"),
            tx_bytes: peer.number("TxBytes"),
            last_handshake: peer.time("LastHandshake"),
            is_online: peer.flag("Online"),
            is_active: peer.flag("Active"),
            is_expired: peer.flag("Expired"),
            key_expiry: peer.time("KeyExpiry"),
        })
    }
}

/// The login error in a health warning. tailscaled reports it nowhere else.
///
/// <https://github.com/tailscale/tailscale/blob/v1.102.5/health/warnings.go#L106>
pub(super) fn login_error(warning: &str) -> Option<&str> {
    let (_, error) = warning.split_once("last login error was: ")?;
    Some(error.trim()).filter(|error| !error.is_empty())
}

#[cfg(test)]
mod tests;
