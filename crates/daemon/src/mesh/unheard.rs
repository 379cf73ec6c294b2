//! Whether this node sends to others and hears from nobody. A server that has forgotten a node tells
//! all but the node itself, whose tailscaled goes on as if nothing had happened: this is the first
//! that can be seen of it here.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tailnet::localapi::Member;

/// A member that gets something and has nothing to send says so within 10 seconds: `KeepaliveTimeout`,
/// <https://www.wireguard.com/papers/wireguard.pdf>, 6.1.
const SILENCE: Duration = Duration::from_secs(12);
/// Silence has other reasons, too, and the server is asked less and less often about it.
const LONGEST: Duration = Duration::from_mins(10);

/// What was heard and said until now.
#[derive(Debug)]
pub(super) struct Unheard {
    /// What came from each member, and what went to it, by its key.
    counts: BTreeMap<String, (u64, u64)>,
    /// Since when something was sent and nothing came.
    since: Option<Instant>,
    /// How long that may last before it is told.
    patience: Duration,
}

impl Default for Unheard {
    fn default() -> Self {
        Self {
            counts: BTreeMap::new(),
            since: None,
            patience: SILENCE,
        }
    }
}

impl Unheard {
    /// Takes note of what was heard by now; whether it is time to ask the server.
    pub(super) fn note(&mut self, peers: &[Member], now: Instant) -> bool {
        let (mut has_heard, mut has_sent) = (false, false);
        for peer in peers {
            if let Some((received, sent)) = self.counts.get(&peer.key) {
                has_heard |= peer.received_bytes > *received;
                has_sent |= peer.sent_bytes > *sent;
            }
        }
        let count = |peer: &Member| (peer.key.clone(), (peer.received_bytes, peer.sent_bytes));
        self.counts = peers.iter().map(count).collect();
        if has_heard {
            (self.since, self.patience) = (None, SILENCE);
        } else if has_sent && self.since.is_none() {
            self.since = Some(now);
        }
        let is_late = self.since.is_some_and(|since| now - since >= self.patience);
        if is_late {
            self.since = None;
            self.patience = (self.patience * 2).min(LONGEST);
        }
        is_late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(key: &str, received_bytes: u64, sent_bytes: u64) -> Member {
        Member {
            key: key.to_owned(),
            received_bytes,
            sent_bytes,
            ..Member::default()
        }
    }

    /// The seconds at which the server is to be asked, if a look at each second finds this.
    fn asked(seconds: u64, look: impl Fn(u64) -> Vec<Member>) -> Vec<u64> {
        let (mut unheard, start) = (Unheard::default(), Instant::now());
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
        assert_eq!(asked(60, |_| vec![]), [0; 0]);
        // Somebody new has not been silent.
        assert_eq!(asked(60, |at| vec![peer(&at.to_string(), 1, 1)]), [0; 0]);
    }

    #[test]
    fn silence_is_told_less_and_less_often_until_it_ends() {
        let silent = |at| vec![peer("a", u64::from(at >= 100), at)];
        assert_eq!(asked(140, silent), [13, 38, 87, 113, 138]);
    }
}
