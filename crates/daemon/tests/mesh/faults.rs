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
/// The most silence while something in the kernel is put back. This and the next ones are many times what
/// docs/reliability.md tells: a busy machine takes its time, and whoever waits for the next look, every
/// minute, or for nothing at all is found out.
const PUT_BACK: Duration = Duration::from_secs(10);
/// While a tailscaled starts, or finds another way.
const RESTARTED: Duration = Duration::from_mins(1);
/// While a node joins again, or the server comes back: tailscaled asks for it every 30 seconds at worst.
const BACK_IN: Duration = Duration::from_secs(90);
/// Answers that have come all through so long a time mean that the way is there again.
const STEADY: Duration = Duration::from_secs(1);
/// After a tailscaled's start there can be a second silence, of some 15 s, when WireGuard's timers end.
const STEADY_AT_LAST: Duration = Duration::from_secs(20);

/// Two nodes, a pod on each, and a talk between them that goes on during all that is done.
fn with_two_nodes(act: impl FnOnce(&mut Cluster<'_>, &Talk<'_>)) {
    let scene = Scene::new(&[Site::Open, Site::Open]);
    let mut cluster = Cluster::new(&scene.grounds).unwrap();
    cluster.start().unwrap();
    let talk = Talk::begin(&cluster);
    await_direct(&cluster.members);
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
        talk.await_steady(STEADY);
        talk
    }

    /// Does something, waits until all is well again, and tells for how long there was silence, which must
    /// not be more than `most`. A connection goes on whatever happens.
    #[track_caller]
    fn silence(&self, what: &str, most: Duration, act: impl FnOnce()) {
        let (longest, _) = self.measure(what, STEADY, act);
        assert!(longest <= most, "{what}: {longest:?} of silence");
    }

    /// The same for what may seem to be over and come again: all silences together are not more.
    #[track_caller]
    fn silences(&self, what: &str, most: Duration, act: impl FnOnce()) {
        let (_, all) = self.measure(what, STEADY_AT_LAST, act);
        assert!(all <= most, "{what}: {all:?} of silence in all");
    }

    /// The longest silence, and all of them together.
    #[track_caller]
    fn measure(&self, what: &str, window: Duration, act: impl FnOnce()) -> (Duration, Duration) {
        self.pulses().for_each(Pulse::reset);
        let start = Instant::now();
        act();
        self.await_steady(window);
        let longest = self.pings.pulses().map(Pulse::longest_gap).max().unwrap();
        let silences = self.pings.pulses().map(Pulse::silences);
        let silences = silences.max_by_key(|all| all.iter().sum::<Duration>());
        // What is too short to be one of them is all that there was.
        let silences = silences
            .filter(|all| !all.is_empty())
            .unwrap_or(vec![longest]);
        let all: Duration = silences.iter().sum();
        let connection = self.connection.longest_gap();
        eprintln!(
            "measured: {what}: silence {:.2} s, first {:.2} s, in all {:.2} s, of the connection {:.2} s, \
             all done after {:.1} s",
            longest.as_secs_f32(),
            silences[0].as_secs_f32(),
            all.as_secs_f32(),
            connection.as_secs_f32(),
            start.elapsed().as_secs_f32(),
        );
        assert_eq!(self.connection.broken(), None, "{what}");
        (longest, all)
    }

    /// As [`Self::silence`], for what must not cost a single packet.
    #[track_caller]
    fn loses_nothing(&self, what: &str, act: impl FnOnce()) {
        // Answers may be late on a busy machine.
        self.silence(what, PUT_BACK, act);
        self.pings.check_none_lost(what);
    }

    fn await_steady(&self, window: Duration) {
        // Whoever measures may look for longer.
        let longer = std::env::var("HEADCNI_STEADY_SECONDS").ok();
        let longer = longer.map(|text| Duration::from_secs(text.parse().unwrap()));
        let window = window.max(longer.unwrap_or_default());
        let mut heard: Vec<Heard<'_>> = self.pulses().map(Heard::new).collect();
        eventually(REPAIRED + window, "pods hear each other", || {
            heard.iter_mut().for_each(Heard::listen);
            let is_steady = |one: &Heard<'_>| one.run() > window;
            heard.iter().all(is_steady).then_some(())
        })
        .unwrap_or_else(|error| {
            let runs: Vec<_> = heard.iter().map(Heard::run).collect();
            panic!("{error:#}: ping, ping by IPv6 and the connection were heard for {runs:?}")
        });
    }

    fn pulses(&self) -> impl Iterator<Item = &Pulse> {
        self.pings.pulses().chain([&self.connection])
    }
}

/// What has been heard of a pulse since somebody listens.
struct Heard<'p> {
    pulse: &'p Pulse,
    answers: u64,
    /// The first and the last answer since the last pause.
    run: Option<(Instant, Instant)>,
}

impl<'p> Heard<'p> {
    fn new(pulse: &'p Pulse) -> Self {
        let answers = pulse.answers();
        Self {
            pulse,
            answers,
            run: None,
        }
    }

    fn listen(&mut self) {
        let (now, answers) = (Instant::now(), self.pulse.answers());
        let is_over = |(_, last): &(Instant, Instant)| now - *last > HARDLY;
        self.run = self.run.filter(|run| !is_over(run));
        if answers > self.answers {
            let first = self.run.map_or(now, |(first, _)| first);
            (self.answers, self.run) = (answers, Some((first, now)));
        }
    }

    /// For how long it has been heard without a pause.
    fn run(&self) -> Duration {
        self.run
            .map_or(Duration::ZERO, |(first, last)| last - first)
    }
}

/// A node's metric, or nought as long as nothing is said about it.
fn reading(member: &Member<'_>, name: &str, labels: &[(&str, &str)]) -> f64 {
    let readings = member.readings().unwrap();
    readings.sum(name, labels).unwrap_or_default()
}

/// Our rules, as `ip` words them.
fn our_rules(member: &Member<'_>) -> String {
    member
        .sh("for family in -4 -6; do ip $family rule | grep -E '^5(190|195|200):'; done")
        .unwrap_or_default()
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
