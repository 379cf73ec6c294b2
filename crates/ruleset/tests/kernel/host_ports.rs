//! hostPorts as elements: conflicts, removal, concurrent changes.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use lab::Node;
use net::nft::{Set, concatenate, element};
use ruleset::PORTS_TABLE;
use ruleset::host_ports::{HostPort, HostPortError, Protocol, add, list, remove};

use crate::harness::{listed, node_with_tables, socket};

fn port(host: Option<&str>, port: u16, pod: &str) -> HostPort {
    HostPort {
        host: host.map(|host| host.parse().unwrap()),
        protocol: Protocol::Tcp,
        port,
        pod: pod.parse().unwrap(),
        pod_port: 80,
    }
}

fn hairpins(node: &Node) -> Vec<String> {
    let mut found = listed(node, "set", "headcni-ports", "hairpin4");
    found.extend(listed(node, "set", "headcni-ports", "hairpin6"));
    found
}

#[test]
fn nft_lists_added_host_ports() {
    let (node, socket) = node_with_tables();
    let ports = [
        port(None, 8080, "10.244.1.10"),
        HostPort {
            protocol: Protocol::Udp,
            ..port(None, 8080, "10.244.1.10")
        },
        HostPort {
            protocol: Protocol::Sctp,
            ..port(Some("0.0.0.0"), 8081, "10.244.1.10")
        },
        port(Some("192.0.2.1"), 8080, "10.244.1.11"),
        port(None, 8080, "fd00:1::10"),
        port(Some("2001:db8::1"), 8080, "fd00:1::10"),
    ];
    add(&socket, &ports).unwrap();
    let shown = |name| listed(&node, "map", "headcni-ports", name);
    assert_eq!(
        shown("by_port4"),
        [
            "sctp . 8081 : 10.244.1.10 . 80",
            "tcp . 8080 : 10.244.1.10 . 80",
            "udp . 8080 : 10.244.1.10 . 80"
        ]
    );
    assert_eq!(
        shown("by_address4"),
        ["192.0.2.1 . tcp . 8080 : 10.244.1.11 . 80"]
    );
    assert_eq!(shown("by_port6"), ["tcp . 8080 : fd00:1::10 . 80"]);
    assert_eq!(
        shown("by_address6"),
        ["2001:db8::1 . tcp . 8080 : fd00:1::10 . 80"]
    );
    assert_eq!(
        hairpins(&node),
        [
            "10.244.1.10 . 10.244.1.10",
            "10.244.1.11 . 10.244.1.11",
            "fd00:1::10 . fd00:1::10"
        ]
    );
    let mut wanted = ports;
    wanted[2].host = None;
    wanted.sort();
    assert_eq!(list(&socket).unwrap(), wanted);

    add(&socket, &ports).unwrap();
    assert_eq!(list(&socket).unwrap(), wanted, "adding again is fine");
    remove(&socket, &ports).unwrap();
    assert_eq!(list(&socket).unwrap(), []);
    assert_eq!(hairpins(&node), Vec::<String>::new());
}

#[test]
fn a_taken_port_is_an_error_with_its_holder_and_nothing_is_added() {
    let (node, socket) = node_with_tables();
    let taken = port(None, 80, "10.244.1.10");
    add(&socket, &[taken]).unwrap();
    let ours = [port(None, 79, "10.244.1.11"), port(None, 80, "10.244.1.11")];
    let error = add(&socket, &ours).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot forward TCP port 80 to 10.244.1.11: it is forwarded to 10.244.1.10:80"
    );
    let HostPortError::Taken { port, holder } = error else {
        panic!("{error}");
    };
    assert_eq!(port, ours[1]);
    assert_eq!(holder, SocketAddr::new(taken.pod, 80));
    assert_eq!(list(&socket).unwrap(), [taken]);
    assert_eq!(hairpins(&node), ["10.244.1.10 . 10.244.1.10"]);

    // Another port of the same pod conflicts, too.
    let moved = HostPort {
        pod_port: 81,
        ..taken
    };
    let error = add(&socket, &[moved]).unwrap_err();
    assert!(matches!(error, HostPortError::Taken { .. }), "{error}");
}

#[test]
fn a_late_removal_keeps_the_new_holder() {
    let (node, socket) = node_with_tables();
    let (old, new) = (port(None, 80, "10.244.1.10"), port(None, 80, "10.244.1.11"));
    let late = [old, port(Some("192.0.2.1"), 80, "10.244.1.10")];
    add(&socket, &[new]).unwrap();
    remove(&socket, &late).unwrap();
    assert_eq!(list(&socket).unwrap(), [new]);
    assert_eq!(hairpins(&node), ["10.244.1.11 . 10.244.1.11"]);
}

#[test]
fn a_hairpin_is_removed_with_the_last_port_of_its_pod() {
    let (node, socket) = node_with_tables();
    let ports = [
        port(None, 80, "10.244.1.10"),
        port(Some("192.0.2.1"), 81, "10.244.1.10"),
    ];
    add(&socket, &ports).unwrap();
    remove(&socket, &ports[..1]).unwrap();
    assert_eq!(hairpins(&node).len(), 1);
    remove(&socket, &ports[1..]).unwrap();
    assert_eq!(hairpins(&node).len(), 0);
    remove(&socket, &ports).unwrap();
}

#[test]
fn without_the_table_adding_fails_and_removing_succeeds() {
    let node = Node::new("n1").unwrap();
    let socket = socket(&node);
    let ports = [port(None, 80, "10.244.1.10"), port(None, 80, "fd00::1")];
    let error = add(&socket, &ports).unwrap_err();
    assert!(matches!(error, HostPortError::NoTable), "{error}");
    remove(&socket, &ports).unwrap();
    let error = list(&socket).unwrap_err();
    assert!(matches!(error, HostPortError::NoTable), "{error}");
    add(&socket, &[]).unwrap();
}

#[test]
fn forty_concurrent_pods_leave_nothing() {
    let (node, check) = node_with_tables();
    thread::scope(|scope| {
        for number in 1..=40u8 {
            let node = &node;
            scope.spawn(move || {
                let socket = socket(node);
                let pod = format!("10.244.1.{number}");
                let ours = [
                    port(None, 1000 + u16::from(number), &pod),
                    port(Some("192.0.2.1"), 2000, &format!("10.244.2.{}", number % 4)),
                ];
                for _ in 0..10 {
                    add(&socket, &ours[..1]).unwrap();
                    // Several compete for this port, and one has it.
                    let outcome = add(&socket, &ours[1..]);
                    assert!(matches!(outcome, Ok(()) | Err(HostPortError::Taken { .. })));
                    remove(&socket, &ours).unwrap();
                }
            });
        }
    });
    assert_eq!(list(&check).unwrap(), []);
    assert_eq!(hairpins(&node), Vec::<String>::new());
}

/// Concurrent DELs of the old pod race with the ADD of a new pod that gets the same port.
#[test]
fn a_removal_never_deletes_a_newer_element() {
    let (node, socket) = node_with_tables();
    let (old, new) = (port(None, 80, "10.244.1.10"), port(None, 80, "10.244.1.11"));
    // The longer a read takes, the more transactions are outdated.
    let others: Vec<HostPort> = (1000..1200)
        .map(|number| port(Some("192.0.2.1"), number, "10.244.1.12"))
        .collect();
    add(&socket, &others).unwrap();
    let map = Set {
        table: PORTS_TABLE,
        name: "by_port4",
    };
    let key = concatenate(&[&[6], &80u16.to_be_bytes()]);
    let is_present = || element(&socket, map, &key).unwrap().is_some();
    let is_done = AtomicBool::new(false);
    let mut lost = 0;
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let socket = crate::harness::socket(&node);
                while !is_done.load(Relaxed) {
                    remove(&socket, &[old]).unwrap();
                }
            });
        }
        for _ in 0..100 {
            add(&socket, &[old]).unwrap();
            while is_present() {}
            add(&socket, &[new]).unwrap();
            // Long enough for removals that began before.
            for _ in 0..3 {
                list(&socket).unwrap();
            }
            lost += u32::from(!is_present());
            remove(&socket, &[new]).unwrap();
        }
        is_done.store(true, Relaxed);
    });
    assert_eq!(lost, 0);
}

#[test]
fn mixed_families_are_rejected() {
    let (_node, socket) = node_with_tables();
    let mixed = port(Some("192.0.2.1"), 80, "fd00::1");
    let error = add(&socket, &[mixed]).unwrap_err();
    assert!(
        matches!(error, HostPortError::MixedFamilies { .. }),
        "{error}"
    );
    let pods: Vec<IpAddr> = list(&socket).unwrap().iter().map(|one| one.pod).collect();
    assert_eq!(pods, Vec::<IpAddr>::new());
}
