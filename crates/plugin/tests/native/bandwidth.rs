//! Rate limits hold, each in its own direction and for its own pod, and go with the pod.

use lab::scenario::PluginNode;
use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use lab::{Netns, Pod};
use rstest::rstest;
use serde_json::{Value, json};

use crate::connections::connect;
use crate::networks::{dual_stack, host_link, ip, ipv4, plugin_node, used_node, with};

/// Bytes per second that a limited pod may have.
const RATE: u64 = 2_000_000;
const BURST: u64 = 100_000;
/// How long a rate is measured.
const SPAN: Duration = Duration::from_millis(500);

/// A network with these limits, in the runtime's terms, which are bits.
fn limited(limits: &Value) -> Value {
    with(
        dual_stack(),
        "runtimeConfig",
        json!({ "bandwidth": limits }),
    )
}

fn to_pod() -> Value {
    limited(&json!({ "ingressRate": RATE * 8, "ingressBurst": BURST * 8 }))
}

fn from_pod() -> Value {
    limited(&json!({ "egressRate": RATE * 8, "egressBurst": BURST * 8 }))
}

/// Bytes per second that pass a connection, what passes in one burst left out.
fn rate(mut from: TcpStream, mut into: TcpStream) -> u64 {
    let mut buffer = vec![0; 1 << 16];
    let ending = from.try_clone().unwrap();
    thread::scope(|scope| {
        // It ends when the connection does.
        scope.spawn(move || while from.write_all(&[7; 1 << 12]).is_ok() {});
        let mut got = 0;
        let mut start = None;
        let rate = loop {
            let length = match into.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                length => u64::try_from(length.unwrap()).unwrap(),
            };
            got += length;
            if got > 2 * BURST {
                let (since, before) = *start.get_or_insert((Instant::now(), got));
                let took = since.elapsed();
                if took > SPAN {
                    break (got - before) * 1_000_000 / u64::try_from(took.as_micros()).unwrap();
                }
            }
        };
        for stream in [&ending, &into] {
            // The other side may have done so already.
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        rate
    })
}

/// The rate from one place to another one's address.
fn rate_to(from: &impl Netns, into: &impl Netns, address: IpAddr) -> u64 {
    let (calling, called) = connect(from, into, address);
    rate(calling, called)
}

fn address(result: &Value, family: usize) -> IpAddr {
    ip(result, family).parse().unwrap()
}

#[track_caller]
fn assert_limited(rate: u64) {
    let allowed = RATE / 2..RATE * 13 / 10;
    assert!(allowed.contains(&rate), "{rate} bytes per second");
}

#[track_caller]
fn assert_unlimited(rate: u64) {
    assert!(rate > RATE * 3, "{rate} bytes per second");
}

/// The queue of a link: none, or a limit with its rate and burst in bytes.
fn queue(place: &impl Netns, link: &str) -> Option<(u64, u64)> {
    let listed = place.run(["tc", "-j", "qdisc", "show", "dev", link]);
    let listed: Value = serde_json::from_str(&listed.unwrap().stdout).unwrap();
    let queues = listed.as_array().unwrap();
    let kinds: Vec<&str> = queues
        .iter()
        .filter_map(|queue| queue["kind"].as_str())
        .collect();
    match kinds[..] {
        ["noqueue"] => None,
        ["tbf"] => {
            let options = &queues[0]["options"];
            Some((options["rate"].as_u64()?, options["burst"].as_u64()?))
        }
        _ => panic!("{listed}"),
    }
}

fn queues_of(plugin: &PluginNode, pod: &Pod, result: &Value) -> [Option<(u64, u64)>; 2] {
    let host = queue(&plugin.node, &host_link(result));
    [host, queue(pod, "eth0")]
}

#[rstest]
#[case::unsaid(dual_stack(), [None, None])]
#[case::none(limited(&json!({ "ingressRate": 0, "egressRate": 0 })), [None, None])]
#[case::to_pod(to_pod(), [Some((RATE, BURST)), None])]
#[case::from_pod(from_pod(), [None, Some((RATE, BURST))])]
#[case::both(
    limited(&json!({ "ingressRate": 8_000_000, "ingressBurst": 800_000,
        "egressRate": 80_000_000_000_u64, "egressBurst": 8_000_000 })),
    [Some((1_000_000, 100_000)), Some((10_000_000_000, 1_000_000))])]
fn a_link_has_the_limits_that_were_asked_for(
    #[case] conf: Value,
    #[case] expected: [Option<(u64, u64)>; 2],
) {
    let plugin = plugin_node();
    let (pod, result) = plugin.attached("one", &conf);
    let found = queues_of(&plugin, &pod, &result);
    for (found, expected) in found.into_iter().zip(expected) {
        assert_eq!(found.is_some(), expected.is_some());
        let Some(((rate, burst), expected)) = found.zip(expected) else {
            continue;
        };
        assert_eq!(rate, expected.0);
        // tc shows it rounded to what passes in a microsecond.
        assert!(burst.abs_diff(expected.1) <= rate / 1_000_000, "{burst}");
    }
}

#[rstest]
fn what_goes_to_a_pod_is_limited_and_nothing_else(#[values(0, 1)] family: usize) {
    let plugin = plugin_node();
    let (slow, first) = plugin.attached("slow", &to_pod());
    let (other, second) = plugin.attached("other", &dual_stack());
    let (slow_ip, other_ip) = (address(&first, family), address(&second, family));
    assert_limited(rate_to(&other, &slow, slow_ip));
    assert_limited(rate_to(&plugin.node, &slow, slow_ip));
    assert_unlimited(rate_to(&slow, &other, other_ip));
    assert_unlimited(rate_to(&plugin.node, &other, other_ip));
}

#[rstest]
fn what_comes_from_a_pod_is_limited_and_nothing_else(#[values(0, 1)] family: usize) {
    let plugin = plugin_node();
    let (slow, first) = plugin.attached("slow", &from_pod());
    let (other, second) = plugin.attached("other", &dual_stack());
    let (slow_ip, other_ip) = (address(&first, family), address(&second, family));
    assert_limited(rate_to(&slow, &other, other_ip));
    let gateway = ["10.9.0.1", "fd00:9::1"][family].parse().unwrap();
    assert_limited(rate_to(&slow, &plugin.node, gateway));
    assert_unlimited(rate_to(&other, &slow, slow_ip));
    assert_unlimited(rate_to(&other, &plugin.node, gateway));
}

#[test]
fn limits_go_with_the_pod() {
    let conf = with(
        ipv4(),
        "runtimeConfig",
        json!({ "bandwidth": {
        "ingressRate": RATE * 8, "egressRate": RATE * 8 } }),
    );
    let plugin = used_node(&conf);
    let before = plugin.snapshot();
    let queues = || plugin.node.run(["tc", "qdisc", "show"]).unwrap().stdout;
    let none = queues();
    let (pod, first) = plugin.attached("one", &conf);
    assert!(queues().contains("tbf"));
    plugin.succeed("DEL", &conf, &pod);
    assert_eq!(queues(), none);
    plugin.node.assert_unchanged(&before);
    // The next link of the same name has none of it.
    let second = plugin.succeed("ADD", &ipv4(), &pod).ok_json().unwrap();
    assert_eq!(host_link(&second), host_link(&first));
    assert_eq!(queues_of(&plugin, &pod, &second), [None, None]);
}
