use ruleset::host_ports::Protocol;

use super::*;
use crate::TableFault;

const MAC: Mac = Mac::local([2, 0, 0, 0, 0, 1]);

fn pod(name: &str, addresses: &[&str]) -> DesiredPodLink {
    DesiredPodLink {
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

/// One pod in order.
fn whole() -> Observed {
    Observed {
        links: vec![link("hca", 7)],
        routes: vec![route("10.9.0.2", 7), route("fd00::2", 7)],
        neighbours: vec![neighbour("10.9.0.2", 7), neighbour("fd00::2", 7)],
        ..Observed::default()
    }
}

fn pods() -> DesiredPods {
    DesiredPods {
        links: vec![pod("hca", &["10.9.0.2", "fd00::2"])],
        ports: Vec::new(),
    }
}

#[test]
fn a_pod_in_order_needs_no_action() {
    assert_eq!(plan(&pods(), &whole(), &[]), []);
}

#[test]
fn routes_and_neighbours_of_a_flapped_link_are_restored() {
    let mut observed = whole();
    observed.routes.remove(1);
    observed.neighbours.clear();
    let expected = [
        Action::RestorePodNeighbour(neighbour("10.9.0.2", 7)),
        Action::RestorePodRoute {
            address: ip("fd00::2"),
            link: 7,
        },
        Action::RestorePodNeighbour(neighbour("fd00::2", 7)),
    ];
    assert_eq!(plan(&pods(), &observed, &[]), expected);
}

#[test]
fn a_link_that_is_down_missing_or_unmanaged_is_left_alone() {
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
fn a_route_to_another_pod_is_not_replaced() {
    let mut observed = whole();
    observed.routes[0] = route("10.9.0.2", 8);
    assert_eq!(plan(&pods(), &observed, &[]), []);
}

#[test]
fn missing_host_ports_of_running_pods_are_published() {
    let mut pods = pods();
    pods.ports = vec![port(80, "10.9.0.2"), port(81, "10.9.0.9")];
    let mut observed = whole();
    let publish = [Action::PublishHostPort(port(80, "10.9.0.2"))];
    assert_eq!(plan(&pods, &observed, &[]), publish);
    observed.tables.published = vec![port(80, "10.9.0.2")];
    assert_eq!(plan(&pods, &observed, &[]), publish, "no hairpin");
    observed.tables.hairpins = vec![ip("10.9.0.2")];
    assert_eq!(plan(&pods, &observed, &[]), []);
    let put = Action::ReplaceTable(Table::Ports, TableFault::Changed);
    assert_eq!(plan(&pods, &observed, &[put]), publish);
}

#[test]
fn the_unspecified_host_address_means_every_address() {
    let mut pods = pods();
    let unspecified = HostPort {
        host: Some(ip("0.0.0.0")),
        ..port(80, "10.9.0.2")
    };
    pods.ports = vec![unspecified];
    let mut observed = whole();
    observed.tables.published = vec![port(80, "10.9.0.2")];
    observed.tables.hairpins = vec![ip("10.9.0.2")];
    assert_eq!(plan(&pods, &observed, &[]), []);
}

#[test]
fn a_host_port_is_removed_only_without_link_route_and_record() {
    let mut observed = whole();
    let dead = port(81, "10.9.0.9");
    observed.tables.published = vec![port(80, "10.9.0.2"), dead];
    assert_eq!(
        plan(&pods(), &observed, &[]),
        [Action::UnpublishHostPort(dead)]
    );
    // A link that is down has no route, but exists.
    observed.routes.clear();
    observed.links[0].is_up = false;
    assert_eq!(
        plan(&pods(), &observed, &[]),
        [Action::UnpublishHostPort(dead)]
    );
    // During ADD only the route exists.
    observed.routes = vec![route("10.9.0.9", 8)];
    assert_eq!(plan(&pods(), &observed, &[]), []);
    // During DEL only the record exists.
    observed.routes.clear();
    let mut pods = pods();
    pods.ports = vec![dead];
    assert_eq!(plan(&pods, &observed, &[]), []);
}
