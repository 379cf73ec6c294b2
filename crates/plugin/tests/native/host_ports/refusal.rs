//! A port that somebody has already.

use std::time::Duration;

use lab::{EchoServer, Family, Netns};

use super::{NODE, Site, at, elements, mapping, publishing};
use crate::networks::{call, dual_stack, headcni, ip, ipv4, used_node};

const TRY_AGAIN_LATER: u64 = 11;

#[test]
fn a_taken_port_is_refused_with_its_holder_and_nothing_remains() {
    let site = Site::new();
    let conf = publishing(ipv4(), &[mapping("tcp", 8080, 80)]);
    let (holder, result) = site.plugin.attached("holder", &conf);
    let before = site.plugin.snapshot();

    // Its other ports are free, and must not stay behind.
    let wanted = [
        mapping("tcp", 7070, 70),
        mapping("tcp", 8080, 81),
        mapping("udp", 9090, 90),
    ];
    let second = publishing(ipv4(), &wanted);
    let pod = site.plugin.pod("second");
    let outcome = site.plugin.fail("ADD", &second, &pod, TRY_AGAIN_LATER);
    let words = outcome.err_msg();
    for part in ["8080", &format!("{}:80", ip(&result, 0))] {
        assert!(words.contains(part), "{words}");
    }
    site.plugin.node.assert_unchanged(&before);
    let _server = EchoServer::start(&holder, Family::V4, 80).unwrap();
    site.neighbour.call_echo(at(NODE[0], 8080), "x").unwrap();

    // The runtime's own DEL after the failure changes nothing either.
    site.plugin.succeed("DEL", &second, &pod);
    site.plugin.node.assert_unchanged(&before);

    site.plugin.succeed("DEL", &conf, &holder);
    site.plugin.succeed("ADD", &second, &pod);
    let _server = EchoServer::start(&pod, Family::V4, 81).unwrap();
    site.neighbour.call_echo(at(NODE[0], 8080), "x").unwrap();
}

#[test]
fn of_many_who_want_a_port_at_once_one_gets_it() {
    let conf = publishing(dual_stack(), &[mapping("tcp", 8080, 80)]);
    let plugin = used_node(&conf);
    let pods: Vec<_> = (0..8).map(|n| plugin.pod(&format!("p{n}"))).collect();
    let running: Vec<_> = pods
        .iter()
        .map(|pod| {
            let call = call("ADD", &conf).pod(pod);
            call.spawn(&plugin.node, headcni()).unwrap()
        })
        .collect();
    let outcomes = running
        .into_iter()
        .map(|running| running.wait(Duration::from_secs(30)).unwrap());
    let successes: Vec<_> = outcomes
        .filter(|outcome| outcome.status.success())
        .map(|outcome| outcome.stdout)
        .collect();
    let [only] = successes.as_slice() else {
        panic!("{successes:?}");
    };
    let result = serde_json::from_str(only).unwrap();
    let [ipv4, ipv6] = [0, 1].map(|index| ip(&result, index));
    let expected = [
        format!("by_port4: tcp . 8080 : {ipv4} . 80"),
        format!("by_port6: tcp . 8080 : {ipv6} . 80"),
        format!("hairpin4: {ipv4} . {ipv4}"),
        format!("hairpin6: {ipv6} . {ipv6}"),
    ];
    // nft prints names for ports that /etc/services has one for.
    let found = elements(&plugin).join("\n").replace("http-alt", "8080");
    assert_eq!(found, expected.join("\n"));
}
