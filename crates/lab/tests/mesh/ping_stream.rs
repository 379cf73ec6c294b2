//! Ping streams, iperf3 and ping measure what happens on the wire.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use lab::{
    EchoServer, Family, Load, Netns, Node, PingStream, Port, Underlay, eventually, latency,
    throughput,
};

const TIMEOUT: Duration = Duration::from_secs(20);
/// For answers that are on their way.
const IN_FLIGHT: Duration = Duration::from_secs(2);

struct TwoNodes {
    underlay: Underlay,
    nodes: [Node; 2],
    ports: [Port; 2],
}

impl TwoNodes {
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

    /// Unplugs the second node for half a second; returns for how long.
    fn unplug_for_a_while(&self) -> Duration {
        self.underlay.unplug(&self.ports[1]).unwrap();
        let start = Instant::now();
        eventually(TIMEOUT, "half a second", || {
            (start.elapsed() > Duration::from_millis(500)).then_some(())
        })
        .unwrap();
        let out = start.elapsed();
        self.underlay.replug(&self.ports[1]).unwrap();
        out
    }
}

#[test]
fn an_unplugged_cable_is_a_gap() {
    let setup = TwoNodes::new();
    for address in setup.addresses() {
        let stream = PingStream::ping(&setup.nodes[0], address).unwrap();
        stream.await_answer(TIMEOUT).unwrap();
        let out = setup.unplug_for_a_while();
        stream.await_answer(TIMEOUT).unwrap();
        assert!(stream.longest_gap() >= out / 2);
        assert!(stream.longest_gap() < TIMEOUT);
        stream.reset();
        assert!(stream.longest_gap() < out, "{:?}", stream.longest_gap());
    }
}

#[test]
fn only_pings_during_an_outage_are_lost() {
    let setup = TwoNodes::new();
    for address in setup.addresses() {
        let stream = PingStream::ping(&setup.nodes[0], address).unwrap();
        stream.await_answer(TIMEOUT).unwrap();
        stream.reset();
        eventually(TIMEOUT, "some answers", || {
            (stream.answers() > 20).then_some(())
        })
        .unwrap();
        assert_eq!(stream.lost(TIMEOUT), []);
        let out = setup.unplug_for_a_while();
        stream.await_answer(TIMEOUT).unwrap();
        let lost = stream.lost(IN_FLIGHT);
        // One every 20 ms; a busy machine sends fewer.
        assert!(lost.len() > 5, "{lost:?} of {out:?}");
        let numbers = lost.iter().map(|one| one.number);
        let following = numbers.clone().zip(numbers.clone().skip(1));
        assert!(following.clone().all(|(one, next)| next > one), "{lost:?}");
        // Consecutive, except around the start and the end of the outage.
        assert!(
            following.filter(|(one, next)| next - one > 1).count() <= 2,
            "{lost:?}"
        );
        let times = lost.iter().map(|one| one.after);
        let (first, end) = (times.clone().min().unwrap(), times.max().unwrap());
        assert!(end >= first + out / 2, "{lost:?} of {out:?}");
        stream.reset();
        stream.await_answer(TIMEOUT).unwrap();
        assert_eq!(stream.lost(TIMEOUT), []);
    }
}

#[test]
fn a_late_answer_is_not_a_loss() {
    let setup = TwoNodes::new();
    let [one, two] = &setup.nodes;
    let stream = PingStream::ping(one, setup.addresses()[0]).unwrap();
    stream.await_answer(TIMEOUT).unwrap();
    // Pings wait for the neighbour's MAC address, which arp_ignore 8 hides.
    two.sysctl("net.ipv4.conf.all.arp_ignore", "8").unwrap();
    stream.reset();
    one.run(["ip", "neighbour", "flush", "dev", "eth0"])
        .unwrap();
    eventually(TIMEOUT, "pings wait", || {
        (stream.lost(Duration::ZERO).len() > 5).then_some(())
    })
    .unwrap();
    two.sysctl("net.ipv4.conf.all.arp_ignore", "0").unwrap();
    assert_eq!(stream.lost(TIMEOUT), []);
    assert!(stream.longest_gap() > Duration::from_millis(100));
}

#[test]
fn a_gap_that_lasts_is_counted() {
    let setup = TwoNodes::new();
    let stream = PingStream::ping(&setup.nodes[0], "10.99.0.200".parse().unwrap()).unwrap();
    eventually(TIMEOUT, "a gap", || {
        (stream.longest_gap() > Duration::from_millis(200)).then_some(())
    })
    .unwrap();
    assert_eq!(stream.answers(), 0);
    assert!(stream.lost(Duration::ZERO).len() > 2);
    assert!(stream.await_answer(Duration::from_millis(50)).is_err());
}

#[test]
fn streams_in_one_netns_do_not_mix_their_answers() {
    let setup = TwoNodes::new();
    let there = PingStream::ping(&setup.nodes[0], setup.addresses()[0]).unwrap();
    let unreachable = PingStream::ping(&setup.nodes[0], "10.99.0.200".parse().unwrap()).unwrap();
    there.await_answer(TIMEOUT).unwrap();
    there.await_answer(TIMEOUT).unwrap();
    assert_eq!(unreachable.answers(), 0);
}

#[test]
fn a_tcp_stream_survives_an_outage_and_breaks_with_its_server() {
    let setup = TwoNodes::new();
    let mut server = setup.nodes[1].command("socat");
    server.args(["TCP-LISTEN:7,fork,reuseaddr", "PIPE"]);
    let mut server = Some(lab::Running::spawn(&mut server, b"").unwrap());
    let address = SocketAddr::new(setup.addresses()[0], 7);
    let stream = eventually(TIMEOUT, "a connection", || {
        PingStream::tcp(&setup.nodes[0], address).ok()
    })
    .unwrap();
    stream.await_answer(TIMEOUT).unwrap();
    let out = setup.unplug_for_a_while();
    stream.await_answer(TIMEOUT).unwrap();
    assert_eq!(stream.broken(), None);
    assert!(stream.longest_gap() >= out / 2);
    drop(server.take());
    eventually(TIMEOUT, "the connection breaks", || stream.broken()).unwrap();
}

#[test]
fn an_echo_server_answers_a_tcp_stream() {
    let setup = TwoNodes::new();
    let server = EchoServer::start(&setup.nodes[1], Family::V4, 0).unwrap();
    let address = SocketAddr::new(setup.addresses()[0], server.port().unwrap());
    let stream = PingStream::tcp(&setup.nodes[0], address).unwrap();
    stream.await_answer(TIMEOUT).unwrap();
    stream.await_answer(TIMEOUT).unwrap();
}

#[test]
fn iperf3_and_ping_measure_both_families() {
    let setup = TwoNodes::new();
    let [one, two] = &setup.nodes;
    let second = Duration::from_secs(1);
    for address in setup.addresses() {
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
    let unused = "10.99.0.200".parse().unwrap();
    assert!(latency(one, unused, 1).is_err());
}
