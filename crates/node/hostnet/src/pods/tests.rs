use ruleset::host_ports::Protocol;

use super::*;
use crate::Edit;

const MAC: Mac = Mac::local([2, 0, 0, 0, 0, 1]);

fn pod(name: &str, addresses: &[&str]) -> PodLink {
    PodLink {
        name: name.to_owned(),
        pod_mac: MAC,
        addresses: addresses.iter().map(|text| ip(text)).collect(),
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn link(name: &str, index: u32) -> Link {
    Link {
        index,
        name: name.to_owned(),
        is_up: true,
        mac: None,
        mtu: 1280,
        group: LINK_GROUP,
        kind: "veth".to_owned(),
        alias: String::new(),
    }
}

fn route(address: &str, link: u32) -> Route {
    let kind = RouteKind::Via {
        link,
        gateway: None,
    };
    Route::new(ip(address).into(), kind, PROTO_HEADCNI)
}

fn neighbour(address: &str, link: u32) -> Neighbour {
    Neighbour {
        link,
        address: ip(address),
        mac: MAC,
    }
}

fn port(number: u16, pod: &str) -> HostPort {
    HostPort {
        host: None,
        protocol: Protocol::Tcp,
        port: number,
        pod: ip(pod),
        pod_port: 80,
    }
}

/// A node with one pod that has all it needs.
fn whole() -> Observed {
    Observed {
        links: vec![link("hca", 7)],
        routes: vec![route("10.9.0.2", 7), route("fd00::2", 7)],
        neighbours: vec![neighbour("10.9.0.2", 7), neighbour("fd00::2", 7)],
        ..Observed::default()
    }
}

fn pods() -> Pods {
    Pods {
        links: vec![pod("hca", &["10.9.0.2", "fd00::2"])],
        ports: Vec::new(),
    }
}

#[test]
fn a_pod_that_has_all_it_needs_is_left_alone() {
    assert_eq!(plan(&pods(), &whole(), &[]), []);
}

#[test]
fn what_a_flapped_link_has_lost_comes_back() {
    let mut observed = whole();
    observed.routes.remove(1);
    observed.neighbours.clear();
    let expected = [
        Action::RestoreNeighbour(neighbour("10.9.0.2", 7)),
        Action::RestoreRoute {
            address: ip("fd00::2"),
            link: 7,
        },
        Action::RestoreNeighbour(neighbour("fd00::2", 7)),
    ];
    assert_eq!(plan(&pods(), &observed, &[]), expected);
}

#[test]
fn a_link_that_is_off_gone_or_not_ours_is_left_alone() {
    let mut off = whole();
    off.routes.clear();
    off.neighbours.clear();
    off.links[0].is_up = false;
    assert_eq!(plan(&pods(), &off, &[]), []);
    off.links[0] = link("hca", 7);
    off.links[0].group = 0;
    assert_eq!(plan(&pods(), &off, &[]), []);
    off.links.clear();
    assert_eq!(plan(&pods(), &off, &[]), []);
}

#[test]
fn an_address_that_is_another_pods_by_now_stays_there() {
    let mut observed = whole();
    observed.routes[0] = route("10.9.0.2", 8);
    assert_eq!(plan(&pods(), &observed, &[]), []);
}

#[test]
fn ports_of_living_pods_come_back() {
    let mut pods = pods();
    pods.ports = vec![port(80, "10.9.0.2"), port(81, "10.9.0.9")];
    let mut observed = whole();
    let publish = [Action::Publish(port(80, "10.9.0.2"))];
    assert_eq!(plan(&pods, &observed, &[]), publish);
    observed.tables.published = vec![port(80, "10.9.0.2")];
    assert_eq!(
        plan(&pods, &observed, &[]),
        publish,
        "it can't reach itself"
    );
    observed.tables.hairpins = vec![ip("10.9.0.2")];
    assert_eq!(plan(&pods, &observed, &[]), []);
    let put = Action::PutTable(Table::Ports, Edit::Changed);
    assert_eq!(plan(&pods, &observed, &[put]), publish);
}

#[test]
fn every_address_can_be_said_in_two_ways() {
    let mut pods = pods();
    let said = HostPort {
        host: Some(ip("0.0.0.0")),
        ..port(80, "10.9.0.2")
    };
    pods.ports = vec![said];
    let mut observed = whole();
    observed.tables.published = vec![port(80, "10.9.0.2")];
    observed.tables.hairpins = vec![ip("10.9.0.2")];
    assert_eq!(plan(&pods, &observed, &[]), []);
}

#[test]
fn a_port_is_taken_back_only_when_nothing_is_left_of_its_pod() {
    let mut observed = whole();
    let dead = port(81, "10.9.0.9");
    observed.tables.published = vec![port(80, "10.9.0.2"), dead];
    assert_eq!(plan(&pods(), &observed, &[]), [Action::Unpublish(dead)]);
    // A link that is off has no route, but it is there.
    observed.routes.clear();
    observed.links[0].is_up = false;
    assert_eq!(plan(&pods(), &observed, &[]), [Action::Unpublish(dead)]);
    // Of one that is being made only the route is there.
    observed.routes = vec![route("10.9.0.9", 8)];
    assert_eq!(plan(&pods(), &observed, &[]), []);
    // And of one that is being unmade only the record is.
    observed.routes.clear();
    let mut pods = pods();
    pods.ports = vec![dead];
    assert_eq!(plan(&pods, &observed, &[]), []);
}
