//! Routes, rules and addresses that are made and removed, as `ip` sees them.

#![expect(
    clippy::unwrap_used,
    reason = "these are tests, and clippy takes only the functions marked so for tests"
)]

use ipnet::IpNet;
use lab::{Netns, Node, eventually};
use net::{
    Address, Batch, DestinationRule, Errno, PROTO_HEADCNI, Route, RouteKind, Socket, TABLE_MAIN,
};

const NETWORKS: [&str; 2] = ["10.9.0.0/24", "fd00:9::/64"];

fn place() -> (Node, Socket) {
    let node = Node::new("n1").unwrap();
    let socket = node.enter(Socket::route).unwrap().unwrap();
    (node, socket)
}

fn send(socket: &Socket, write: impl FnOnce(&mut Batch)) -> Result<(), net::NetError> {
    let mut batch = Batch::new();
    write(&mut batch);
    socket.send(batch)
}

fn network(text: &str) -> IpNet {
    text.parse().unwrap()
}

#[test]
fn an_unreachable_network_comes_and_goes() {
    let (node, socket) = place();
    for text in NETWORKS {
        let mut route = Route::new(network(text), RouteKind::Unreachable, PROTO_HEADCNI);
        route.metric = Some(4_000_000);
        send(&socket, |batch| route.replace_in(batch)).unwrap();
        let found = net::routes(&socket).unwrap();
        let found: Vec<&Route> = found.iter().filter(|r| r.dst == route.dst).collect();
        assert_eq!(found.len(), 1);
        let seen = (
            found[0].kind,
            found[0].protocol,
            found[0].metric,
            found[0].table,
        );
        let wanted = (
            RouteKind::Unreachable,
            PROTO_HEADCNI,
            Some(4_000_000),
            TABLE_MAIN,
        );
        assert_eq!(seen, wanted);
        let line = format!("unreachable {text} dev lo proto 104 metric 4000000");
        let line = line.replace(" dev lo", if text.contains(':') { " dev lo" } else { "" });
        let routes = node.routes().unwrap();
        assert!(routes.iter().any(|r| r.starts_with(&line)), "{routes:?}");

        // One like it of somebody else stays.
        let mut foreign = route.clone();
        foreign.metric = Some(7);
        foreign.protocol = 4;
        send(&socket, |batch| foreign.add_to(batch)).unwrap();
        send(&socket, |batch| route.remove_in(batch)).unwrap();
        let routes = node.routes().unwrap().join("\n");
        assert!(
            routes.contains("metric 7") && !routes.contains("4000000"),
            "{routes}"
        );
        let again = send(&socket, |batch| route.remove_in(batch)).unwrap_err();
        assert!(again.is(Errno::SRCH), "{again}");
        send(&socket, |batch| foreign.remove_in(batch)).unwrap();
    }
}

#[test]
fn a_rule_by_destination_comes_and_goes() {
    let (node, socket) = place();
    for text in NETWORKS {
        let rule = DestinationRule {
            to: network(text),
            table: TABLE_MAIN,
            priority: 5190,
            protocol: PROTO_HEADCNI,
        };
        send(&socket, |batch| rule.add_to(batch)).unwrap();
        assert_eq!(net::destination_rules(&socket).unwrap(), [rule]);
        let family = if text.contains(':') { "-6" } else { "-4" };
        let listed = node.run(["ip", family, "rule", "show", "priority", "5190"]);
        let listed = listed.unwrap().stdout;
        let wanted = format!("5190: from all to {text} lookup main proto 104");
        let listed: Vec<&str> = listed.split_whitespace().collect();
        assert_eq!(listed.join(" "), wanted);
        let twice = send(&socket, |batch| rule.add_to(batch)).unwrap_err();
        assert!(twice.is(Errno::EXIST), "{twice}");
        send(&socket, |batch| rule.remove_in(batch)).unwrap();
        let again = send(&socket, |batch| rule.remove_in(batch)).unwrap_err();
        assert!(again.is(Errno::NOENT), "{again}");
    }
    assert_eq!(net::destination_rules(&socket).unwrap(), []);
}

#[test]
fn rules_of_other_kinds_are_no_rules_by_destination() {
    let (node, socket) = place();
    for line in [
        "ip rule add from 10.1.0.0/16 lookup 7",
        "ip rule add to 10.2.0.0/16 unreachable",
        "ip rule add fwmark 1 lookup 7",
    ] {
        node.run(line.split_whitespace()).unwrap();
    }
    assert_eq!(net::destination_rules(&socket).unwrap(), []);
}

#[test]
fn an_address_comes_and_goes() {
    let (node, socket) = place();
    for text in ["10.9.0.1/32", "fd00:9::1/128"] {
        let address = Address {
            link: 1,
            net: network(text),
        };
        send(&socket, |batch| address.add_to(batch)).unwrap();
        assert!(net::addresses(&socket).unwrap().contains(&address));
        // The kernel makes an IPv6 address local in its own time.
        let answers = || node.ping(&address.net.addr().to_string()).ok();
        eventually(lab::DEADLINE, "an answer", answers).unwrap();
        send(&socket, |batch| address.remove_in(batch)).unwrap();
        assert!(!net::addresses(&socket).unwrap().contains(&address));
        let again = send(&socket, |batch| address.remove_in(batch)).unwrap_err();
        assert!(again.is(Errno::ADDRNOTAVAIL), "{again}");
    }
}
