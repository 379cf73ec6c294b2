//! Gaps, rates and times are those of the wire.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use lab::{EchoServer, Family, Load, Netns, Node, Port, PingStream, Underlay, eventually, latency, throughput};

const PATIENCE: Duration = Duration::from_secs(20);
/// For what is on its way between two nodes on one switch.
const STRAGGLERS: Duration = Duration::from_secs(2);

struct Scene {
    underlay: Underlay,
    nodes: [Node; 2],
    ports: [Port; 2],
}

impl Scene {
    fn new() -> Self {
        let underlay = Underlay::new().unwrap();
        let nodes = ["n1", "n2"].map(|name| Node::new(name).unwrap());
        let ports = nodes.each_ref().map(|node| underlay.plug(node).unwrap());
        Self {
            underlay,
            nodes,
            ports,
        }
    }

    fn addresses(&self) -> [IpAddr; 2] {
        let port = &self.ports[1];
        [port.v4.into(), port.v6.unwrap().into()]
    }

    /// Pulls the second one's cable. For how long it was out at the least.
    fn cut_a_while(&self) -> Duration {
        self.underlay.unplug(&self.ports[1]).unwrap();
        let start = Instant::now();
        eventually(PATIENCE, "half a second", || {
            (start.elapsed() > Duration::from_millis(500)).then_some(())
        })
        .unwrap();
        let out = start.elapsed();
        self.underlay.replug(&self.ports[1]).unwrap();
        out
    }
}

#[test]
fn a_cut_cable_is_a_gap_in_the_pulse() {
    let scene = Scene::new();
    for address in scene.addresses() {
        let pulse = PingStream::ping(&scene.nodes[0], address).unwrap();
        pulse.await_answer(PATIENCE).unwrap();
        let out = scene.cut_a_while();
        pulse.await_answer(PATIENCE).unwrap();
        assert!(pulse.longest_gap() >= out / 2);
        assert!(pulse.longest_gap() < PATIENCE);
        pulse.reset();
        assert!(pulse.longest_gap() < out, "{:?}", pulse.longest_gap());
    }
}

#[test]
fn pings_into_a_cut_cable_are_lost_and_no_others() {
    let scene = Scene::new();
    for address in scene.addresses() {
        let pulse = PingStream::ping(&scene.nodes[0], address).unwrap();
        pulse.await_answer(PATIENCE).unwrap();
        pulse.reset();
        eventually(PATIENCE, "some answers", || {
            (pulse.answers() > 20).then_some(())
        })
        .unwrap();
        assert_eq!(pulse.lost(PATIENCE), []);
        let out = scene.cut_a_while();
        pulse.await_answer(PATIENCE).unwrap();
        let lost = pulse.lost(STRAGGLERS);
        // One every 20 ms; a busy machine sends fewer.
        assert!(lost.len() > 5, "{lost:?} of {out:?}");
        let numbers = lost.iter().map(|one| one.number);
        let following = numbers.clone().zip(numbers.clone().skip(1));
        assert!(following.clone().all(|(one, next)| next > one), "{lost:?}");
        // In one go, but for what is on its way while a cable is pulled or put back.
        assert!(
            following.filter(|(one, next)| next - one > 1).count() <= 2,
            "{lost:?}"
        );
        let times = lost.iter().map(|one| one.after);
        let (first, end) = (times.clone().min().unwrap(), times.max().unwrap());
        assert!(end >= first + out / 2, "{lost:?} of {out:?}");
        pulse.reset();
        pulse.await_answer(PATIENCE).unwrap();
        assert_eq!(pulse.lost(PATIENCE), []);
    }
}

#[test]
fn a_late_answer_is_no_loss() {
    let scene = Scene::new();
    let [one, two] = &scene.nodes;
    let pulse = PingStream::ping(one, scene.addresses()[0]).unwrap();
    pulse.await_answer(PATIENCE).unwrap();
    // Packets wait for the other's hardware address, which it does not tell: arp_ignore 8.
    two.sysctl("net.ipv4.conf.all.arp_ignore", "8").unwrap();
    pulse.reset();
    one.run(["ip", "neighbour", "flush", "dev", "eth0"])
        .unwrap();
    eventually(PATIENCE, "pings wait", || {
        (pulse.lost(Duration::ZERO).len() > 5).then_some(())
    })
    .unwrap();
    two.sysctl("net.ipv4.conf.all.arp_ignore", "0").unwrap();
    assert_eq!(pulse.lost(PATIENCE), []);
    assert!(pulse.longest_gap() > Duration::from_millis(100));
}

#[test]
fn silence_at_the_end_counts() {
    let scene = Scene::new();
    let pulse = PingStream::ping(&scene.nodes[0], "10.99.0.200".parse().unwrap()).unwrap();
    eventually(PATIENCE, "a gap", || {
        (pulse.longest_gap() > Duration::from_millis(200)).then_some(())
    })
    .unwrap();
    assert_eq!(pulse.answers(), 0);
    assert!(pulse.lost(Duration::ZERO).len() > 2);
    assert!(pulse.await_answer(Duration::from_millis(50)).is_err());
}

#[test]
fn pulses_of_one_namespace_do_not_take_each_others_answers() {
    let scene = Scene::new();
    let there = PingStream::ping(&scene.nodes[0], scene.addresses()[0]).unwrap();
    let nowhere = PingStream::ping(&scene.nodes[0], "10.99.0.200".parse().unwrap()).unwrap();
    there.await_answer(PATIENCE).unwrap();
    there.await_answer(PATIENCE).unwrap();
    assert_eq!(nowhere.answers(), 0);
}

#[test]
fn a_connection_outlives_a_cut_cable_and_not_a_dead_server() {
    let scene = Scene::new();
    let mut server = scene.nodes[1].command("socat");
    server.args(["TCP-LISTEN:7,fork,reuseaddr", "PIPE"]);
    let mut server = Some(lab::Running::spawn(&mut server, b"").unwrap());
    let address = SocketAddr::new(scene.addresses()[0], 7);
    let pulse = eventually(PATIENCE, "a connection", || {
        PingStream::tcp(&scene.nodes[0], address).ok()
    })
    .unwrap();
    pulse.await_answer(PATIENCE).unwrap();
    let out = scene.cut_a_while();
    pulse.await_answer(PATIENCE).unwrap();
    assert_eq!(pulse.broken(), None);
    assert!(pulse.longest_gap() >= out / 2);
    drop(server.take());
    eventually(PATIENCE, "the end is noticed", || pulse.broken()).unwrap();
}

#[test]
fn an_echo_server_serves_a_pulse() {
    let scene = Scene::new();
    let server = EchoServer::start(&scene.nodes[1], Family::V4, 0).unwrap();
    let address = SocketAddr::new(scene.addresses()[0], server.port().unwrap());
    let pulse = PingStream::tcp(&scene.nodes[0], address).unwrap();
    pulse.await_answer(PATIENCE).unwrap();
    pulse.await_answer(PATIENCE).unwrap();
}

#[test]
fn iperf3_and_ping_measure_both_families() {
    let scene = Scene::new();
    let [one, two] = &scene.nodes;
    let second = Duration::from_secs(1);
    for address in scene.addresses() {
        let tcp = throughput(one, (two, address), Load::Tcp { streams: 2 }, second).unwrap();
        assert!(tcp.bits_per_second > 1e6, "{tcp:?}");
        let load = Load::Udp {
            bits_per_second: 1_000_000,
        };
        let udp = throughput(one, (two, address), load, second).unwrap();
        assert!(udp.bits_per_second > 1e5, "{udp:?}");
        let times = latency(one, address, 20).unwrap();
        assert!(times.least <= times.average && times.average <= times.p99 * 20);
    }
    let nobody = "10.99.0.200".parse().unwrap();
    assert!(latency(one, nobody, 1).is_err());
}
