//! Faults, and how traffic between pods on two nodes comes through them. Whatever happens, none of their
//! packets crosses the underlay in clear: [`MeshCluster`] checks that.

mod first_join_gate;
mod headscale_admin;
mod headscale_outage;
mod networkd;
mod relay_failover;
mod restarts;
mod rogue_peers;
mod wiped_kernel_state;

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use lab::scenario::connectivity::{Pings, await_direct};
use lab::scenario::{AttachedPod, MeshCluster, MeshNode};
use lab::{EchoServer, Family, Netns, PingStream, eventually};

/// More than jitter on a busy machine, less than a tailscaled takes to start.
const JITTER: Duration = Duration::from_millis(1500);
/// How long a repair may take on a busy machine. A TCP connection notices it only at its next
/// retransmission, which can take as long again.
const REPAIR_TIMEOUT: Duration = Duration::from_secs(150);
/// The longest outage while kernel state is restored. These limits are several times the figures in
/// docs/reliability.md, and still catch a repair that waits for the next periodic reconcile.
const KERNEL_RESTORE: Duration = Duration::from_secs(10);
/// The longest outage while a tailscaled starts or finds another path.
const TAILSCALED_RESTART: Duration = Duration::from_mins(1);
/// The longest outage while a node rejoins or Headscale comes back: tailscaled retries at least every
/// 30 seconds.
const REJOIN: Duration = Duration::from_secs(90);
/// Answers for this long without a gap mean that traffic has recovered.
const RECOVERED: Duration = Duration::from_secs(1);
/// After a start of tailscaled a second outage of some 15 s can follow when WireGuard's timers expire.
const RECOVERED_AFTER_RESTART: Duration = Duration::from_secs(20);

/// Two nodes, and traffic between a pod on each that goes on during `act`.
fn with_two_nodes(act: impl FnOnce(&mut MeshCluster, &Traffic)) {
    let mut cluster = MeshCluster::start(2);
    let traffic = Traffic::start(&cluster);
    await_direct(&cluster.nodes).unwrap();
    act(&mut cluster, &traffic);
}

/// Pings of both families and a TCP connection from a pod of the first node to one of the second.
struct Traffic {
    client: AttachedPod,
    server: AttachedPod,
    pings: Pings,
    connection: PingStream,
    _echo: EchoServer,
}

impl Traffic {
    fn start(cluster: &MeshCluster) -> Self {
        let [client, server] = [0, 1].map(|nth| cluster.nodes[nth].pod("traffic").unwrap());
        let echo = EchoServer::start(&server.pod, Family::V4, 0).unwrap();
        let address = SocketAddr::new(server.ips[0], echo.port().unwrap());
        // The peer may not have our route yet.
        await_ping(&client, server.ips[0]);
        await_ping(&client, server.ips[1]);
        let traffic = Self {
            pings: Pings::start(&client, &server).unwrap(),
            connection: PingStream::tcp(&client.pod, address).unwrap(),
            client,
            server,
            _echo: echo,
        };
        traffic.await_recovered(RECOVERED);
        traffic
    }

    /// Does `act` and waits until traffic has recovered. The longest outage must not exceed `max`, and the
    /// TCP connection must survive.
    #[track_caller]
    fn assert_outage(&self, what: &str, max: Duration, act: impl FnOnce()) {
        let (longest, _) = self.measure(what, RECOVERED, act);
        assert!(longest <= max, "{what}: an outage of {longest:?}");
    }

    /// The same for the sum of all outages, where a second one may follow.
    #[track_caller]
    fn assert_total_outage(&self, what: &str, max: Duration, act: impl FnOnce()) {
        let (_, total) = self.measure(what, RECOVERED_AFTER_RESTART, act);
        assert!(total <= max, "{what}: outages of {total:?} in total");
    }

    /// Does `act`, during which no packet may be lost.
    #[track_caller]
    fn assert_no_loss(&self, what: &str, act: impl FnOnce()) {
        // Answers may be late on a busy machine.
        self.assert_outage(what, KERNEL_RESTORE, act);
        self.pings.assert_none_lost(what);
    }

    /// The longest outage, and all of them together.
    #[track_caller]
    fn measure(&self, what: &str, window: Duration, act: impl FnOnce()) -> (Duration, Duration) {
        self.streams().for_each(PingStream::reset);
        let start = Instant::now();
        act();
        self.await_recovered(window);
        let longest = self
            .pings
            .streams()
            .map(PingStream::longest_gap)
            .max()
            .unwrap();
        let outages = self.pings.streams().map(PingStream::outages);
        let outages = outages.max_by_key(|all| all.iter().sum::<Duration>());
        // Without an outage, the longest gap is what there was.
        let outages = outages
            .filter(|all| !all.is_empty())
            .unwrap_or(vec![longest]);
        let total: Duration = outages.iter().sum();
        let connection = self.connection.longest_gap();
        eprintln!(
            "measured: {what}: longest outage {:.2} s, first {:.2} s, total {:.2} s, of the connection {:.2} s, \
             done after {:.1} s",
            longest.as_secs_f32(),
            outages[0].as_secs_f32(),
            total.as_secs_f32(),
            connection.as_secs_f32(),
            start.elapsed().as_secs_f32(),
        );
        assert_eq!(self.connection.broken(), None, "{what}");
        (longest, total)
    }

    fn await_recovered(&self, window: Duration) {
        // A longer window, for measurements.
        let longer = std::env::var("HEADCNI_STEADY_SECONDS").ok();
        let longer = longer.map(|text| Duration::from_secs(text.parse().unwrap()));
        let window = window.max(longer.unwrap_or_default());
        let mut runs: Vec<Run<'_>> = self.streams().map(Run::new).collect();
        eventually(REPAIR_TIMEOUT + window, "traffic recovers", || {
            runs.iter_mut().for_each(Run::update);
            let is_steady = |run: &Run<'_>| run.length() > window;
            runs.iter().all(is_steady).then_some(())
        })
        .unwrap_or_else(|error| {
            let lengths: Vec<_> = runs.iter().map(Run::length).collect();
            panic!("{error:#}: IPv4 ping, IPv6 ping and TCP were answered for {lengths:?}")
        });
    }

    fn streams(&self) -> impl Iterator<Item = &PingStream> {
        self.pings.streams().chain([&self.connection])
    }
}

/// Consecutive answers of a stream.
struct Run<'p> {
    stream: &'p PingStream,
    answers: u64,
    /// Time of the first and the last answer since the last gap.
    span: Option<(Instant, Instant)>,
}

impl<'p> Run<'p> {
    fn new(stream: &'p PingStream) -> Self {
        Self {
            stream,
            answers: stream.answers(),
            span: None,
        }
    }

    fn update(&mut self) {
        let (now, answers) = (Instant::now(), self.stream.answers());
        self.span = self.span.filter(|(_, last)| now - *last <= JITTER);
        if answers > self.answers {
            let first = self.span.map_or(now, |(first, _)| first);
            (self.answers, self.span) = (answers, Some((first, now)));
        }
    }

    fn length(&self) -> Duration {
        self.span
            .map_or(Duration::ZERO, |(first, last)| last - first)
    }
}

/// The daemon's ip rules.
fn ip_rules(node: &MeshNode) -> String {
    node.sh("for family in -4 -6; do ip $family rule | grep -E '^5(190|195|200):'; done")
        .unwrap_or_default()
}

/// Waits until a node reports that it reaches its peer by this path. A reload makes it look at once.
fn await_path(node: &MeshNode, path: &str) {
    node.reload();
    eventually(REPAIR_TIMEOUT, &format!("the peer by path {path}"), || {
        let count = node.metric("headcni_mesh_peers", &[("path", path)]);
        (count > 0.0).then_some(())
    })
    .unwrap_or_else(|error| panic!("{error:#}\n{}", node.diagnostics()));
}

fn await_ping(from: &AttachedPod, to: IpAddr) {
    let what = format!("{:?} reaches {to}", from.ips);
    eventually(REPAIR_TIMEOUT, &what, || {
        from.pod.ping(&to.to_string()).ok()
    })
    .unwrap();
}
