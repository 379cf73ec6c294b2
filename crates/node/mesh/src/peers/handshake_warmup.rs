//! Handshake warm-up: pings peers that are new or have a new key.
//!
//! A node with a new key starts handshakes before its peers know the key, and WireGuard retries only
//! after 5 seconds. A peer that has just learnt the key can start the handshake at once.

use std::collections::BTreeSet;
use std::net::IpAddr;

use tailscaled::localapi::{LocalApi, PeerStatus, PingType};

/// Per reconcile, for large tailnets.
const MOST: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct HandshakeWarmup {
    keys: BTreeSet<String>,
}

impl HandshakeWarmup {
    /// Pings new peers with the tag and does not wait for answers.
    pub(crate) fn ping_new(&mut self, tailscaled: &LocalApi, peers: &[PeerStatus], tag: &str) {
        for address in self.new_peers(peers, tag) {
            let tailscaled = tailscaled.clone();
            tokio::spawn(async move {
                // The handshake counts, not the answer.
                let _ = tailscaled.ping(address, PingType::Tsmp).await;
            });
        }
    }

    fn new_peers(&mut self, peers: &[PeerStatus], tag: &str) -> Vec<IpAddr> {
        let is_ours = |peer: &&PeerStatus| peer.tags.iter().any(|has| has == tag);
        let ours: Vec<&PeerStatus> = peers.iter().filter(is_ours).collect();
        let new = ours
            .iter()
            .filter(|peer| !self.keys.contains(&peer.public_key));
        let addresses = new.filter_map(|peer| peer.addresses.first().copied());
        let new_peers = addresses.take(MOST).collect();
        self.keys = ours.iter().map(|peer| peer.public_key.clone()).collect();
        new_peers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(key: &str, address: &str, tag: &str) -> PeerStatus {
        PeerStatus {
            public_key: key.to_owned(),
            addresses: vec![address.parse().unwrap()],
            tags: vec![tag.to_owned()],
            ..PeerStatus::default()
        }
    }

    #[test]
    fn each_peer_is_pinged_once_per_key() {
        let mut warmup = HandshakeWarmup::default();
        let mut new = |peers: &[PeerStatus]| -> Vec<String> {
            let found = warmup.new_peers(peers, "tag:a");
            found.iter().map(IpAddr::to_string).collect()
        };
        let (one, other) = (
            peer("1", "100.64.0.1", "tag:a"),
            peer("2", "100.64.0.2", "tag:b"),
        );
        assert_eq!(new(&[one.clone(), other.clone()]), ["100.64.0.1"]);
        assert_eq!(new(&[one.clone(), other.clone()]), [""; 0]);
        let again = peer("3", "100.64.0.1", "tag:a");
        assert_eq!(new(&[again, other]), ["100.64.0.1"]);
        assert_eq!(new(&[]), [""; 0]);
        assert_eq!(new(&[one]), ["100.64.0.1"]);
    }
}
