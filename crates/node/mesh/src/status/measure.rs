//! What is measured of the mesh: who is reached how, and what went through it.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use jiff::Timestamp;
use tailscaled::localapi::{LocalApi, PeerStatus, PingType, Status};

use node_core::metrics::{ByPath, ByTraffic, MeshMetrics, Metrics};

/// So many nodes are asked for their latency at a time; others the next time.
const MOST_PINGS: usize = 8;

/// Where packets to a node go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Path {
    Direct(SocketAddr),
    Relay,
}

/// What was known at the last look.
#[derive(Default)]
pub(crate) struct Measure {
    paths: BTreeMap<String, Path>,
    totals: BTreeMap<(&'static str, &'static str), u64>,
    next_ping: usize,
}

impl Measure {
    /// Notes who is reached how.
    pub(crate) fn peers(
        &mut self,
        status: &Status,
        tag: &str,
        now: Timestamp,
        metrics: &MeshMetrics,
    ) {
        let nodes = || nodes(status, tag);
        for path in ["direct", "relay", "idle", "offline"] {
            let count = nodes().filter(|peer| kind_of_path(peer) == path).count();
            let by = ByPath {
                path: path.to_owned(),
            };
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            metrics.peers.get_or_create(&by).set(count);
        }
        let paths = nodes().filter_map(|peer| Some((peer.public_key.clone(), path_to(peer)?)));
        let paths: BTreeMap<_, _> = paths.collect();
        // Whoever had no way before did not change it. A node that nothing was sent to for a while has
        // none, and its next one is its first.
        let is_other = |(key, path): &(&String, &Path)| {
            let before = self.paths.get(*key);
            before.is_some_and(|before| before != *path)
        };
        let changes = paths.iter().filter(is_other).count();
        let changes = u64::try_from(changes).unwrap_or(u64::MAX);
        metrics.path_changes.inc_by(changes);
        self.paths = paths;
        let ages = nodes()
            .filter(|peer| peer.is_active)
            .filter_map(|peer| Some(now.duration_since(peer.last_handshake?).as_secs_f64()));
        metrics.handshake_age.set(ages.fold(0.0, f64::max));
    }

    /// Asks some nodes for their latency. Nobody waits for it: a node that does not answer takes
    /// seconds to be given up, and whoever measures has more to do.
    pub(crate) fn ping(
        &mut self,
        tailscaled: &LocalApi,
        status: &Status,
        tag: &str,
        metrics: &Arc<Metrics>,
    ) {
        for address in self.pinged(status, tag) {
            let (tailscaled, metrics) = (tailscaled.clone(), Arc::clone(metrics));
            tokio::spawn(async move {
                if let Ok(pong) = tailscaled.ping(address, PingType::Disco).await {
                    metrics.mesh.latency.observe(pong.latency.as_secs_f64());
                }
            });
        }
    }

    /// Asks tailscaled for its bytes.
    pub(crate) async fn ask(&mut self, tailscaled: &LocalApi, metrics: &MeshMetrics) {
        if let Ok(text) = tailscaled.user_metrics().await {
            self.count(&text, metrics);
        }
    }

    fn pinged(&mut self, status: &Status, tag: &str) -> Vec<IpAddr> {
        let online: Vec<IpAddr> = nodes(status, tag)
            .filter(|peer| peer.is_online)
            .filter_map(|peer| peer.addresses.first().copied())
            .collect();
        let count = online.len().min(MOST_PINGS);
        let first = self.next_ping;
        self.next_ping = first.wrapping_add(count);
        let around = online.iter().cycle().skip(first % online.len().max(1));
        around.take(count).copied().collect()
    }

    /// tailscaled counts from its own start, and so from nought again after a restart.
    fn count(&mut self, text: &str, metrics: &MeshMetrics) {
        let mut totals = BTreeMap::new();
        for line in text.lines() {
            if let Some((key, value)) = traffic(line) {
                *totals.entry(key).or_insert(0) += value;
            }
        }
        for ((direction, path), total) in &totals {
            let before = self.totals.get(&(*direction, *path)).copied();
            let before = before.filter(|before| before <= total).unwrap_or_default();
            let by = ByTraffic {
                direction: (*direction).to_owned(),
                path: (*path).to_owned(),
            };
            metrics.bytes.get_or_create(&by).inc_by(total - before);
        }
        self.totals = totals;
    }
}

fn nodes<'a>(status: &'a Status, tag: &'a str) -> impl Iterator<Item = &'a PeerStatus> {
    let peers = status.peers.iter();
    peers.filter(move |peer| peer.tags.iter().any(|has| has == tag))
}

/// A member that nobody has sent anything to for a while has no path, and one that is away has none.
fn path_to(peer: &PeerStatus) -> Option<Path> {
    match (peer.is_online, peer.cur_addr, peer.is_active) {
        (true, Some(address), _) => Some(Path::Direct(address)),
        (true, None, true) => Some(Path::Relay),
        (false, ..) | (true, None, false) => None,
    }
}

fn kind_of_path(peer: &PeerStatus) -> &'static str {
    match path_to(peer) {
        Some(Path::Direct(_)) => "direct",
        Some(Path::Relay) => "relay",
        None if peer.is_online => "idle",
        None => "offline",
    }
}

/// A line of tailscaled's own metrics, if it counts bytes.
fn traffic(line: &str) -> Option<((&'static str, &'static str), u64)> {
    let (series, value) = line.rsplit_once(' ')?;
    let direction = if series.starts_with("tailscaled_inbound_bytes_total{") {
        "received"
    } else if series.starts_with("tailscaled_outbound_bytes_total{") {
        "sent"
    } else {
        return None;
    };
    let path = if series.contains("path=\"derp\"") {
        "relay"
    } else {
        "direct"
    };
    Some(((direction, path), value.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use tailscaled::localapi::BackendState;

    use super::*;

    const TEXT: &str = "# HELP tailscaled_inbound_bytes_total x\n\
        # TYPE tailscaled_inbound_bytes_total counter\n\
        tailscaled_inbound_bytes_total{path=\"derp\"} 5\n\
        tailscaled_inbound_bytes_total{path=\"direct_ipv4\"} 10\n\
        tailscaled_inbound_bytes_total{path=\"direct_ipv6\"} 20\n\
        tailscaled_outbound_bytes_total{path=\"direct_ipv4\"} 7\n\
        tailscaled_inbound_packets_total{path=\"derp\"} 99\n";

    const TAG: &str = "tag:k8s-node";

    fn peer(key: &str, cur_addr: Option<&str>) -> PeerStatus {
        PeerStatus {
            public_key: key.to_owned(),
            tags: vec![TAG.to_owned()],
            cur_addr: cur_addr.map(|address| address.parse().unwrap()),
            is_online: true,
            is_active: true,
            ..PeerStatus::default()
        }
    }

    fn status(peers: Vec<PeerStatus>) -> Status {
        Status {
            version: String::new(),
            state: BackendState::Running,
            has_node_key: true,
            auth_url: None,
            health: Vec::new(),
            addresses: Vec::new(),
            has_tun: Some(true),
            self_node: PeerStatus::default(),
            peers,
            invalid_peers: 0,
            magic_dns_suffix: None,
        }
    }

    /// What is counted when a peer is as it is on the left, and then on the right.
    #[rstest]
    #[case::to_another_address(peer("a", Some("10.0.0.1:1")), peer("a", Some("10.0.0.2:1")), 1)]
    #[case::to_the_relay(peer("a", Some("10.0.0.1:1")), peer("a", None), 1)]
    #[case::from_the_relay(peer("a", None), peer("a", Some("10.0.0.1:1")), 1)]
    #[case::the_same(peer("a", Some("10.0.0.1:1")), peer("a", Some("10.0.0.1:1")), 0)]
    #[case::by_the_relay_still(peer("a", None), peer("a", None), 0)]
    #[case::somebody_else(peer("a", None), peer("b", Some("10.0.0.1:1")), 0)]
    #[case::fell_silent(peer("a", Some("10.0.0.1:1")), PeerStatus { is_active: false, ..peer("a", None) }, 0)]
    #[case::speaks_again(PeerStatus { is_active: false, ..peer("a", None) }, peer("a", Some("10.0.0.1:1")), 0)]
    #[case::went_away(peer("a", Some("10.0.0.1:1")), PeerStatus { is_online: false, ..peer("a", None) }, 0)]
    #[case::no_node_of_ours(
        PeerStatus { tags: Vec::new(), ..peer("a", None) },
        PeerStatus { tags: Vec::new(), ..peer("a", Some("10.0.0.1:1")) },
        0
    )]
    fn another_way_is_counted_and_a_first_one_is_not(
        #[case] before: PeerStatus,
        #[case] after: PeerStatus,
        #[case] changes: u64,
    ) {
        let metrics = Metrics::new().mesh;
        let mut measure = Measure::default();
        for peer in [before, after] {
            measure.peers(&status(vec![peer]), TAG, Timestamp::UNIX_EPOCH, &metrics);
        }
        assert_eq!(metrics.path_changes.get(), changes);
    }

    #[test]
    fn bytes_are_counted_on_over_a_restart_of_tailscaled() {
        let metrics = Metrics::new().mesh;
        let mut measure = Measure::default();
        let bytes = |direction: &str, path: &str| {
            let by = ByTraffic {
                direction: direction.to_owned(),
                path: path.to_owned(),
            };
            metrics.bytes.get_or_create(&by).get()
        };
        measure.count(TEXT, &metrics);
        measure.count(TEXT, &metrics);
        assert_eq!(bytes("received", "direct"), 30);
        assert_eq!(bytes("received", "relay"), 5);
        assert_eq!(bytes("sent", "direct"), 7);
        measure.count(
            "tailscaled_outbound_bytes_total{path=\"direct_ipv4\"} 2\n",
            &metrics,
        );
        assert_eq!(bytes("sent", "direct"), 9);
    }
}
