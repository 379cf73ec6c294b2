//! Says hello to members that are new, or have a new key.
//!
//! A node that has logged in anew calls the others at once, but they don't know its key yet; WireGuard
//! calls again after 5 seconds, and 5 more. Those who have just learnt the key know that they can be
//! understood, so they call.

use std::collections::BTreeSet;
use std::net::IpAddr;

use tailscaled::localapi::{LocalApi, PeerStatus, PingType};

/// So many at a time: who joins a large mesh need not know everybody at once.
const MOST: usize = 16;

/// Those who were greeted, by their keys.
#[derive(Debug, Default)]
pub(crate) struct HandshakeWarmup {
    keys: BTreeSet<String>,
}

impl HandshakeWarmup {
    /// Greets those of a tag who are new, and does not wait for answers.
    pub(crate) fn greet(&mut self, tailscaled: &LocalApi, peers: &[PeerStatus], tag: &str) {
        for address in self.newcomers(peers, tag) {
            let tailscaled = tailscaled.clone();
            tokio::spawn(async move {
                // It is the call that counts. Who does not answer is called by WireGuard again.
                let _ = tailscaled.ping(address, PingType::Tsmp).await;
            });
        }
    }

    fn newcomers(&mut self, peers: &[PeerStatus], tag: &str) -> Vec<IpAddr> {
        let is_ours = |peer: &&PeerStatus| peer.tags.iter().any(|has| has == tag);
        let ours: Vec<&PeerStatus> = peers.iter().filter(is_ours).collect();
        let new = ours
            .iter()
            .filter(|peer| !self.keys.contains(&peer.public_key));
        let addresses = new.filter_map(|peer| peer.addresses.first().copied());
        let newcomers = addresses.take(MOST).collect();
        self.keys = ours.iter().map(|peer| peer.public_key.clone()).collect();
        newcomers
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
    fn each_is_greeted_once_for_each_key() {
        let mut greeted = HandshakeWarmup::default();
        let mut new = |peers: &[PeerStatus]| -> Vec<String> {
            let found = greeted.newcomers(peers, "tag:a");
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
