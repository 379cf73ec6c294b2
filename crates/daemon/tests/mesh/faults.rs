//! What goes wrong, and how pods on two nodes that talk all the while come through it. Whatever
//! happens, none of their packets is seen in clear.

mod administrator;
mod gate;
mod kernel;
mod networkd;
mod paths;
mod processes;
mod rogues;
mod server;

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use lab::{Attached, Cluster, EchoServer, Family, Member, Netns, Pulse, Signal, Site, eventually};

use crate::scene::Scene;
use crate::talk::{Pings, await_direct};

/// More than a busy machine makes of nothing, and less than a tailscaled takes to start.
const HARDLY: Duration = Duration::from_millis(1500);
/// How long something may take to be repaired, on a busy machine. A connection notices only when it
/// tries again, which can take as long once more.
const REPAIRED: Duration = Duration::from_secs(150);
/// Answers that have come all through so long a time mean that the way is there again.
const STEADY: Duration = Duration::from_secs(1);

/// Two nodes, a pod on each, and a talk between them that goes on during all that is done.
fn with_two_nodes(act: impl FnOnce(&mut Cluster<'_>, &Talk<'_>)) {
    with_two_nodes_on(|_| {}, act);
}

/// The same for what takes its time and does little meanwhile: it holds no other test up.
fn with_two_nodes_aside(act: impl FnOnce(&mut Cluster<'_>, &Talk<'_>)) {
    with_two_nodes_on(Scene::stand_aside, act);
}

fn with_two_nodes_on(begun: impl FnOnce(&Scene), act: impl FnOnce(&mut Cluster<'_>, &Talk<'_>)) {
    let scene = Scene::new(&[Site::Open, Site::Open]);
    let mut cluster = Cluster::new(&scene.grounds).unwrap();
    cluster.start().unwrap();
    let talk = Talk::begin(&cluster);
    await_direct(&cluster.members);
    begun(&scene);
    act(&mut cluster, &talk);
    drop(talk);
}

/// A talk between a pod of the first node and one of the second, by pings of both families and by a
/// connection.
struct Talk<'a> {
    caller: Attached<'a>,
    other: Attached<'a>,
    pings: Pings,
    connection: Pulse,
    _server: EchoServer,
}

impl<'a> Talk<'a> {
    fn begin(cluster: &Cluster<'a>) -> Self {
        let [caller, other] = [0, 1].map(|nth| cluster.members[nth].pod("talks").unwrap());
        let server = EchoServer::start(&other.pod, Family::V4, 0).unwrap();
        let address = SocketAddr::new(other.ips[0], server.port().unwrap());
        // The first packets may be before the other node knows where to send answers.
        reaches(&caller, other.ips[0]);
        reaches(&caller, other.ips[1]);
        let talk = Self {
            pings: Pings::start(&caller, &other),
            connection: Pulse::tcp(&caller.pod, address).unwrap(),
            caller,
            other,
            _server: server,
        };
        talk.await_steady();
        talk
    }

    /// Does something, waits until all is well again, and tells for how long there was silence. A
    /// connection goes on whatever happens.
    fn silence(&self, what: &str, act: impl FnOnce()) -> Duration {
        self.pulses().for_each(Pulse::reset);
        let start = Instant::now();
        act();
        self.await_steady();
        let pings = self.pings.pulses().map(Pulse::longest_gap).max().unwrap();
        let connection = self.connection.longest_gap();
        eprintln!(
            "measured: {what}: silence {:.2} s, of the connection {:.2} s, all done after {:.1} s",
            pings.as_secs_f32(),
            connection.as_secs_f32(),
            start.elapsed().as_secs_f32(),
        );
        assert_eq!(self.connection.broken(), None, "{what}");
        pings
    }

    /// The same for what must not cost a single packet.
    #[track_caller]
    fn loses_nothing(&self, what: &str, act: impl FnOnce()) {
        self.silence(what, act);
        self.pings.check_none_lost(what);
    }

    fn await_steady(&self) {
        // Some faults are over and come again: whoever measures looks for longer.
        let longer = std::env::var("HEADCNI_STEADY_SECONDS").ok();
        let longer = longer.map(|text| Duration::from_secs(text.parse().unwrap()));
        let window = longer.unwrap_or(STEADY);
        for (pulse, what) in self.pulses().zip(["ping", "ping by IPv6", "connection"]) {
            let mut answers = pulse.answers();
            let mut heard: Option<(Instant, Instant)> = None;
            eventually(
                REPAIRED + window,
                &format!("pods hear each other: {what}"),
                || {
                    let now = Instant::now();
                    if pulse.answers() == answers {
                        return None;
                    }
                    answers = pulse.answers();
                    let (first, last) = heard.unwrap_or((now, now));
                    let first = if now - last > HARDLY { now } else { first };
                    heard = Some((first, now));
                    (now - first > window).then_some(())
                },
            )
            .unwrap();
        }
    }

    fn pulses(&self) -> impl Iterator<Item = &Pulse> {
        self.pings.pulses().chain([&self.connection])
    }
}

/// A node's metric, or nought as long as nothing is said about it.
fn reading(member: &Member<'_>, name: &str, labels: &[(&str, &str)]) -> f64 {
    let readings = member.readings().unwrap();
    readings.sum(name, labels).unwrap_or_default()
}

/// Waits until a node says that it reaches the other by this path. It looks at once if it is told to.
fn await_path(member: &Member<'_>, path: &str) {
    member.signal(Signal::HUP);
    eventually(REPAIRED, &format!("the other node by path {path}"), || {
        let count = reading(member, "headcni_mesh_peers", &[("path", path)]);
        (count > 0.0).then_some(())
    })
    .unwrap_or_else(|error| panic!("{error:#}\n{}", member.told()));
}

/// Waits until a pod reaches an address.
fn reaches(from: &Attached<'_>, to: IpAddr) {
    eventually(REPAIRED, &format!("{:?} reaches {to}", from.ips), || {
        from.pod.ping(&to.to_string()).ok()
    })
    .unwrap();
}
