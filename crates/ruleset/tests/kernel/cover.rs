//! Sets that cover networks: `ensure_covered`.

use std::sync::Barrier;
use std::thread;

use ipnet::IpNet;
use net::{Errno, nft};
use ruleset::{Sets, ensure_covered};

use crate::harness::{listed, node_with_tables, socket};

fn networks(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn missing_networks_are_added_and_smaller_ones_merged() {
    let (node, socket) = node_with_tables();
    let ensure = |texts: &[&str]| {
        ensure_covered(&socket, Sets::Cluster, &networks(texts)).unwrap();
    };
    let cluster4 = || listed(&node, "set", "headcni", "cluster4");
    ensure(&["10.244.1.0/24", "fd00:1::/64", "10.96.0.0/12"]);
    assert_eq!(cluster4(), ["10.244.1.0/24", "10.96.0.0/12"]);
    assert_eq!(listed(&node, "set", "headcni", "cluster6"), ["fd00:1::/64"]);

    let before = nft::generation(&socket).unwrap();
    ensure(&["10.244.1.0/25", "10.100.0.0/16", "fd00:1::/64"]);
    assert_eq!(nft::generation(&socket).unwrap(), before, "no change");

    ensure(&["10.244.2.0/24", "10.244.0.0/16"]);
    assert_eq!(cluster4(), ["10.244.0.0/16", "10.96.0.0/12"]);
    ensure(&["0.0.0.0/0", "::/0"]);
    let all = nft::intervals(
        &socket,
        nft::Set {
            table: "headcni",
            name: "cluster4",
        },
    );
    assert_eq!(all.unwrap(), [networks(&["0.0.0.0/0"])[0].into()]);
}

#[test]
fn ranges_that_nft_added_are_merged() {
    let (node, socket) = node_with_tables();
    ensure_covered(
        &socket,
        Sets::Excluded,
        &networks(&["169.254.20.10/32", "10.96.0.0/12"]),
    )
    .unwrap();
    let excluded = || listed(&node, "set", "headcni-ports", "excluded4");
    assert_eq!(excluded(), ["10.96.0.0/12", "169.254.0.0/16"]);
    crate::harness::nft(
        &node,
        "add element inet headcni-ports excluded4 { 10.0.0.250-10.0.1.7, 0.0.0.0/8 }",
    );
    ensure_covered(&socket, Sets::Excluded, &networks(&["10.0.0.0/24"])).unwrap();
    assert_eq!(
        excluded(),
        [
            "0.0.0.0/8",
            "10.0.0.0-10.0.1.7",
            "10.96.0.0/12",
            "169.254.0.0/16"
        ]
    );
}

#[test]
fn a_missing_table_is_enoent() {
    let node = lab::Node::new("n1").unwrap();
    let socket = socket(&node);
    let error = ensure_covered(&socket, Sets::Cluster, &networks(&["10.0.0.0/8"])).unwrap_err();
    assert!(error.is(Errno::NOENT), "{error}");
    ensure_covered(&socket, Sets::Cluster, &[]).unwrap();
}

#[test]
fn concurrent_changes_all_succeed() {
    const MANY: usize = 8;
    let (node, check) = node_with_tables();
    // The longer a read takes, the more transactions are outdated.
    let others: Vec<IpNet> = (0..2000)
        .map(|number: u16| format!("172.{}.{}.0/26", number >> 8, number & 255))
        .map(|text| text.parse().unwrap())
        .collect();
    ensure_covered(&check, Sets::Cluster, &others).unwrap();
    let start = Barrier::new(MANY);
    thread::scope(|scope| {
        for _ in 0..MANY {
            scope.spawn(|| {
                let socket = socket(&node);
                // A panic before the last barrier would block the other threads.
                let mut outcomes = Vec::new();
                for number in 0..40 {
                    let texts = [
                        format!("10.{}.{number}.0/24", number % 4),
                        format!("10.{}.0.0/17", number % 20),
                    ];
                    start.wait();
                    let wanted = networks(&texts.each_ref().map(String::as_str));
                    outcomes.push(ensure_covered(&socket, Sets::Cluster, &wanted));
                }
                assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
            });
        }
    });
    let mut found = listed(&node, "set", "headcni", "cluster4");
    found.retain(|one| one.starts_with("10."));
    let wanted: Vec<String> = (0..20)
        .map(|number| format!("10.{number}.0.0/17"))
        .collect();
    assert!(wanted.iter().all(|one| found.contains(one)), "{found:?}");
    assert_eq!(found.len(), wanted.len(), "{found:?}");
}
