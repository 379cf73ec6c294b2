//! Routes, rules and addresses, compared with `ip`.

#![expect(
    clippy::unwrap_used,
    reason = "clippy exempts only functions marked as tests"
)]

use ipnet::IpNet;
use lab::{Netns, Node, eventually};
use net::{
    Address, Batch, DestinationRule, Errno, Mark, PROTO_HEADCNI, Route, RouteKind, RuleAction,
    Socket, TABLE_MAIN,
};

const NETWORKS: [&str; 2] = ["10.9.0.0/24", "fd00:9::/64"];

fn node() -> (Node, Socket) {
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
fn an_unreachable_route_is_added_and_removed() {
    let (node, socket) = node();
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

        // A similar route of another protocol stays.
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
fn a_destination_rule_is_added_and_removed() {
    let (node, socket) = node();
    for text in NETWORKS {
        let rule = DestinationRule {
            to: network(text),
            mark: None,
            action: RuleAction::Lookup(TABLE_MAIN),
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
fn an_unreachable_rule_with_a_mark_is_added_and_removed() {
    let (node, socket) = node();
    for text in NETWORKS {
        let rule = DestinationRule {
            to: network(text),
            mark: Some(Mark {
                value: 0x80000,
                mask: 0xff_0000,
            }),
            action: RuleAction::Unreachable,
            priority: 5195,
            protocol: PROTO_HEADCNI,
        };
        let without_mark = DestinationRule { mark: None, ..rule };
        for one in [rule, without_mark] {
            send(&socket, |batch| one.add_to(batch)).unwrap();
        }
        assert_eq!(
            net::destination_rules(&socket).unwrap(),
            [rule, without_mark]
        );
        let family = if text.contains(':') { "-6" } else { "-4" };
        let listed = node.run(["ip", family, "rule", "show", "priority", "5195"]);
        let listed = listed.unwrap().stdout;
        let wanted = format!("from all to {text} fwmark 0x80000/0xff0000 unreachable proto 104");
        assert!(listed.contains(&wanted), "{listed}");
        send(&socket, |batch| rule.remove_in(batch)).unwrap();
        assert_eq!(net::destination_rules(&socket).unwrap(), [without_mark]);
        send(&socket, |batch| without_mark.remove_in(batch)).unwrap();
    }
}

#[test]
fn a_route_has_a_preferred_source() {
    let (node, socket) = node();
    for line in [
        "ip link add v0 type veth peer name v1",
        "ip link set v0 up",
        "ip link set v1 up",
    ] {
        node.run(line.split_whitespace()).unwrap();
    }
    let link = net::link(&socket, "v0").unwrap().unwrap().index;
    for (text, source) in NETWORKS.into_iter().zip(["10.1.0.1", "fd00:1::1"]) {
        let address = Address {
            link: 1,
            net: source.parse::<std::net::IpAddr>().unwrap().into(),
        };
        send(&socket, |batch| address.add_to(batch)).unwrap();
        let route = Route {
            table: 26723,
            metric: Some(1024),
            source: Some(address.net.addr()),
            ..Route::new(
                network(text),
                RouteKind::Via {
                    link,
                    gateway: None,
                },
                PROTO_HEADCNI,
            )
        };
        send(&socket, |batch| route.replace_in(batch)).unwrap();
        let found = net::routes(&socket).unwrap();
        let found = found.iter().find(|r| r.dst == route.dst).unwrap();
        let seen = Route {
            scope: None,
            ..found.clone()
        };
        assert_eq!(seen, route);
        let family = if text.contains(':') { "-6" } else { "-4" };
        let listed = node.run(["ip", family, "route", "show", "table", "26723"]);
        let listed = listed.unwrap().stdout;
        assert!(listed.contains(&format!("src {source}")), "{listed}");
    }
}

#[test]
fn a_tentative_address_is_not_usable() {
    let (node, socket) = node();
    for line in [
        "ip link add v0 type veth peer name v1",
        "ip link set v1 up",
        "ip link set v0 up",
        "ip address add fd00:9::1/64 dev v0",
        "ip address add 10.9.0.1/24 dev v0",
    ] {
        node.run(line.split_whitespace()).unwrap();
    }
    let has = |addresses: Vec<Address>, text: &str| {
        addresses.iter().any(|address| address.net == network(text))
    };
    let usable = || net::usable_addresses(&socket).unwrap();
    assert!(has(net::addresses(&socket).unwrap(), "fd00:9::1/64"));
    assert!(!has(usable(), "fd00:9::1/64"));
    assert!(has(usable(), "10.9.0.1/24"));
    let is_usable = || has(usable(), "fd00:9::1/64").then_some(());
    eventually(lab::DEADLINE, "duplicate address detection", is_usable).unwrap();
}

#[test]
fn other_rules_are_not_listed_as_destination_rules() {
    let (node, socket) = node();
    for line in [
        "ip rule add from 10.1.0.0/16 lookup 7",
        "ip rule add to 10.2.0.0/16 prohibit",
        "ip rule add fwmark 1 lookup 7",
    ] {
        node.run(line.split_whitespace()).unwrap();
    }
    assert_eq!(net::destination_rules(&socket).unwrap(), []);
}

#[test]
fn an_address_is_added_and_removed() {
    let (node, socket) = node();
    for text in ["10.9.0.1/32", "fd00:9::1/128"] {
        let address = Address {
            link: 1,
            net: network(text),
        };
        send(&socket, |batch| address.add_to(batch)).unwrap();
        assert!(net::addresses(&socket).unwrap().contains(&address));
        // The kernel adds the local route of an IPv6 address later.
        let answers = || node.ping(&address.net.addr().to_string()).ok();
        eventually(lab::DEADLINE, "an answer", answers).unwrap();
        send(&socket, |batch| address.remove_in(batch)).unwrap();
        assert!(!net::addresses(&socket).unwrap().contains(&address));
        let again = send(&socket, |batch| address.remove_in(batch)).unwrap_err();
        assert!(again.is(Errno::ADDRNOTAVAIL), "{again}");
    }
}
