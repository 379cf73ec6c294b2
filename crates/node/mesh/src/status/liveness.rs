//! Whether this node sends to others and hears from nobody. A server that has forgotten a node tells
//! all but the node itself, whose tailscaled goes on as if nothing had happened: this is the first
//! that can be seen of it here.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tailscaled::localapi::{LocalApi, PeerStatus, PingType};

/// A member that gets something and has nothing to send says so within 10 seconds: `KeepaliveTimeout`,
/// <https://www.wireguard.com/papers/wireguard.pdf>, 6.1.
const SILENCE: Duration = Duration::from_secs(12);
/// Silence has other reasons, too, and the server is asked less and less often about it.
const LONGEST: Duration = Duration::from_mins(10);
/// How often others are called, and how many of them.
const CALL: Duration = Duration::from_mins(1);
const MOST_CALLED: usize = 3;

/// What was heard and said until now.
#[derive(Debug)]
pub(crate) struct PeerLiveness {
    /// What came from each member, and what went to it, by its key.
    counts: BTreeMap<String, (u64, u64)>,
    /// Since when something was sent and nothing came.
    since: Option<Instant>,
    /// How long that may last before it is told.
    patience: Duration,
    /// Since when there is nobody to be heard, by what tailscaled was told.
    alone_since: Option<Instant>,
    called: Option<Instant>,
}

impl Default for PeerLiveness {
    fn default() -> Self {
        Self {
            counts: BTreeMap::new(),
            since: None,
            patience: SILENCE,
            alone_since: None,
            called: None,
        }
    }
}

impl PeerLiveness {
    /// Takes note of what was heard by now; whether it is time to ask the server.
    pub(crate) fn note(&mut self, peers: &[PeerStatus], now: Instant) -> bool {
        let (mut has_heard, mut has_sent) = (false, false);
        for peer in peers {
            if let Some((received, sent)) = self.counts.get(&peer.public_key) {
                has_heard |= peer.rx_bytes > *received;
                has_sent |= peer.tx_bytes > *sent;
            }
        }
        let count = |peer: &PeerStatus| (peer.public_key.clone(), (peer.rx_bytes, peer.tx_bytes));
        self.counts = peers.iter().map(count).collect();
        if has_heard {
            (self.since, self.patience) = (None, SILENCE);
        } else if has_sent && self.since.is_none() {
            self.since = Some(now);
        }
        if has_heard || peers.iter().any(|peer| peer.is_online) {
            self.alone_since = None;
        } else {
            self.alone_since.get_or_insert(now);
        }
        let is_over = |since: Option<Instant>, patience: Duration| {
            since.is_some_and(|since| now - since >= patience)
        };
        let is_late = is_over(self.since, self.patience) || is_over(self.alone_since, LONGEST);
        if is_late {
            (self.since, self.alone_since) = (None, None);
            self.patience = (self.patience * 2).min(LONGEST);
        }
        is_late
    }

    /// Calls some others by WireGuard now and then: where pods say nothing, nobody answers. What comes of
    /// it is seen at the next look.
    pub(crate) fn call(&mut self, tailscaled: &LocalApi, peers: &[PeerStatus], now: Instant) {
        if self.called.is_some_and(|called| now - called < CALL) {
            return;
        }
        self.called = Some(now);
        let online = peers.iter().filter(|peer| peer.is_online);
        let addresses = online.filter_map(|peer| peer.addresses.first().copied());
        for address in addresses.take(MOST_CALLED) {
            let tailscaled = tailscaled.clone();
            tokio::spawn(async move { tailscaled.ping(address, PingType::Tsmp).await });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(key: &str, received_bytes: u64, sent_bytes: u64) -> PeerStatus {
        PeerStatus {
            public_key: key.to_owned(),
            rx_bytes: received_bytes,
            tx_bytes: sent_bytes,
            is_online: true,
            ..PeerStatus::default()
        }
    }

    /// The seconds at which the server is to be asked, if a look at each second finds this.
    fn asked(seconds: u64, look: impl Fn(u64) -> Vec<PeerStatus>) -> Vec<u64> {
        let (mut unheard, start) = (PeerLiveness::default(), Instant::now());
        let is_asked =
            |second: &u64| unheard.note(&look(*second), start + Duration::from_secs(*second));
        (0..seconds).filter(is_asked).collect()
    }

    #[test]
    fn who_is_answered_by_anybody_is_heard() {
        assert_eq!(asked(60, |at| vec![peer("a", at, at)]), [0; 0]);
        let one_of_two = |at| vec![peer("a", 7, at), peer("b", at, 3)];
        assert_eq!(asked(60, one_of_two), [0; 0]);
        let keepalives = |at| vec![peer("a", at / 11, at)];
        assert_eq!(asked(60, keepalives), [0; 0]);
    }

    #[test]
    fn who_says_nothing_waits_for_no_answer() {
        assert_eq!(asked(60, |_| vec![peer("a", 1, 1)]), [0; 0]);
        // Somebody new has not been silent.
        assert_eq!(asked(60, |at| vec![peer(&at.to_string(), 1, 1)]), [0; 0]);
    }

    #[test]
    fn silence_is_told_less_and_less_often_until_it_ends() {
        let silent = |at| vec![peer("a", u64::from(at >= 100), at)];
        assert_eq!(asked(140, silent), [13, 38, 87, 113, 138]);
    }

    #[test]
    fn who_is_told_of_nobody_asks_seldom() {
        assert_eq!(asked(1300, |_| vec![]), [600, 1201]);
        let away = |at| {
            let mut peer = peer("a", 1, 1);
            peer.is_online = at >= 400;
            vec![peer]
        };
        assert_eq!(asked(1300, away), [0; 0]);
        // One that is said to be away, and is heard.
        let mistaken = |at| {
            let mut peer = peer("a", at, at);
            peer.is_online = false;
            vec![peer]
        };
        assert_eq!(asked(1300, mistaken), [0; 0]);
    }
}
