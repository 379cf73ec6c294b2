//! Addresses, neighbours, routes and rules on both sides of the pair.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use net::{
    Address, Batch, DestinationRule, Errno, Mac, Neighbour, NetError, PROTO_HEADCNI, Route,
    RouteKind, Rule, RuleAction, Socket, TABLE_MAIN,
};

use super::{Desired, HOST, HOST_MAC, INSIDE, INSIDE_MAC, by_family};
use node_core::routing::{METRIC_UNREACHABLE, PRIORITY_LOCAL, PRIORITY_MARKED, TAILSCALED_MARK};
use node_core::tailnet::RESOLVER;

/// Ahead of the rules of a host's tailscaled, which begin at 5210, and after those for pods: an exit
/// node, or an accepted route to another node's own network, must not get what tailscaled sends.
const PRIORITY_APART: u32 = 5205;
/// What IPv6 gives by default.
const METRIC_IPV6: u32 = 1024;

/// Where a side is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Host,
    Inside,
}

impl Place {
    /// Priorities of the rules that are ours there; the host has others of ours at others.
    fn priorities(self) -> &'static [u32] {
        match self {
            Self::Host => &[PRIORITY_APART],
            Self::Inside => &[PRIORITY_LOCAL, PRIORITY_MARKED],
        }
    }

    fn has(self, priority: u32, protocol: u8) -> bool {
        protocol == PROTO_HEADCNI && self.priorities().contains(&priority)
    }
}

/// What one side is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Side {
    place: Place,
    link: u32,
    addresses: Vec<Address>,
    neighbours: Vec<Neighbour>,
    routes: Vec<Route>,
    rules_to: Vec<DestinationRule>,
    rules_from: Vec<Rule>,
}

impl Side {
    /// The host, by the number of its end.
    pub(super) fn of_host(link: u32) -> Self {
        let inside: [IpNet; 2] = both(INSIDE).map(IpNet::from);
        let straight = RouteKind::Via {
            link,
            gateway: None,
        };
        // In `main`, after a host's tailscaled: where one runs, it answers, as it did before.
        let resolvers = both(RESOLVER).map(|ip| {
            let net = IpNet::from(ip);
            let gateway = Some(by_family(&net, INSIDE));
            route(net, RouteKind::Via { link, gateway })
        });
        let to = |to| DestinationRule {
            to,
            mark: None,
            action: RuleAction::Lookup(TABLE_MAIN),
            priority: PRIORITY_APART,
            protocol: PROTO_HEADCNI,
        };
        let from = |from| Rule {
            from,
            table: TABLE_MAIN,
            priority: PRIORITY_APART,
            protocol: PROTO_HEADCNI,
        };
        Self {
            place: Place::Host,
            link,
            addresses: Vec::new(),
            neighbours: neighbours(link, INSIDE, INSIDE_MAC),
            routes: inside
                .map(|net| route(net, straight))
                .into_iter()
                .chain(resolvers)
                .collect(),
            rules_to: inside.map(to).to_vec(),
            rules_from: inside.map(from).to_vec(),
        }
    }

    /// The namespace, by the number of its end.
    pub(super) fn of_inside(link: u32, desired: &Desired) -> Self {
        let everything = [IpNet::V4(Ipv4Net::default()), IpNet::V6(Ipv6Net::default())];
        let by_host = everything.iter().chain(&desired.local).map(|net| {
            let gateway = Some(by_family(net, HOST));
            route(net.trunc(), RouteKind::Via { link, gateway })
        });
        let cluster = IpNet::aggregate(&desired.cluster);
        // While tailscaled is down, what it would lead away must not go back to where it came from.
        let away = cluster
            .iter()
            .copied()
            .chain(both(RESOLVER).map(IpNet::from));
        let nowhere = away.map(|net| Route {
            metric: Some(METRIC_UNREACHABLE),
            ..route(net, RouteKind::Unreachable)
        });
        let local = desired.local.iter().map(|net| DestinationRule {
            to: net.trunc(),
            mark: None,
            action: RuleAction::Lookup(TABLE_MAIN),
            priority: PRIORITY_LOCAL,
            protocol: PROTO_HEADCNI,
        });
        let marked = cluster.iter().map(|net| DestinationRule {
            to: *net,
            mark: Some(TAILSCALED_MARK),
            action: RuleAction::Unreachable,
            priority: PRIORITY_MARKED,
            protocol: PROTO_HEADCNI,
        });
        let address = |net: IpNet| Address { link, net };
        Self {
            place: Place::Inside,
            link,
            addresses: both(INSIDE).map(|ip| address(ip.into())).to_vec(),
            neighbours: neighbours(link, HOST, HOST_MAC),
            routes: by_host.chain(nowhere).collect(),
            rules_to: local.chain(marked).collect(),
            rules_from: Vec::new(),
        }
    }

    /// The same where the kernel has no IPv6.
    pub(super) fn without_ipv6(mut self) -> Self {
        let is_ipv4 = |net: &IpNet| net.addr().is_ipv4();
        self.addresses.retain(|address| is_ipv4(&address.net));
        self.neighbours.retain(|one| one.address.is_ipv4());
        self.routes.retain(|route| is_ipv4(&route.dst));
        self.rules_to.retain(|rule| is_ipv4(&rule.to));
        self.rules_from.retain(|rule| is_ipv4(&rule.from));
        self
    }

    /// Adds what is missing and takes what is too much; what that was, in words.
    pub(super) fn repair(&self, socket: &Socket) -> Result<Vec<String>, NetError> {
        let mut repairs = Vec::new();
        let mut batch = Batch::new();
        let addresses = net::addresses(socket)?;
        for address in missing(&self.addresses, &addresses) {
            address.add_to(&mut batch);
            batch.tolerating(&[Errno::EXIST]);
            repairs.push(format!("address {} of the mesh was missing", address.net));
        }
        let neighbours = net::permanent_neighbours(socket)?;
        for neighbour in missing(&self.neighbours, &neighbours) {
            neighbour.add_to(&mut batch);
            repairs.push(format!("neighbour {} was missing", neighbour.address));
        }
        let routes = net::routes(socket)?;
        let (lacking, extra) = self.compare_routes(&routes);
        for route in extra {
            route.remove_in(&mut batch);
            batch.tolerating(&[Errno::SRCH]);
            repairs.push(format!("route to {} was too much", route.dst));
        }
        for route in lacking {
            route.replace_in(&mut batch);
            repairs.push(format!("route to {} was missing", route.dst));
        }
        self.repair_rules(socket, &mut batch, &mut repairs)?;
        socket.send(batch)?;
        Ok(repairs)
    }

    /// Routes that are to be made, and those to be taken away.
    fn compare_routes<'a>(&'a self, present: &'a [Route]) -> (Vec<&'a Route>, Vec<&'a Route>) {
        let key = |route: &Route| (route.dst, route.kind, route.metric);
        let ours: Vec<&Route> = present.iter().filter(|one| self.is_ours(one)).collect();
        let is_there = |route: &&Route| ours.iter().any(|one| key(one) == key(route));
        let is_wanted = |route: &&Route| self.routes.iter().any(|one| key(one) == key(route));
        let lacking = self.routes.iter().filter(|route| !is_there(route));
        let extra = ours.iter().copied().filter(|route| !is_wanted(route));
        (lacking.collect(), extra.collect())
    }

    fn is_ours(&self, route: &Route) -> bool {
        let is_by_pair = matches!(route.kind, RouteKind::Via { link, .. } if link == self.link);
        route.protocol == PROTO_HEADCNI
            && route.table == TABLE_MAIN
            && (is_by_pair || self.place == Place::Inside)
    }

    fn repair_rules(
        &self,
        socket: &Socket,
        batch: &mut Batch,
        repairs: &mut Vec<String>,
    ) -> Result<(), NetError> {
        let to = net::destination_rules(socket)?;
        for rule in missing(&self.rules_to, &to) {
            rule.add_to(batch);
            batch.tolerating(&[Errno::EXIST]);
            repairs.push(format!("rule for packets to {} was missing", rule.to));
        }
        let ours = to
            .iter()
            .filter(|one| self.place.has(one.priority, one.protocol));
        for rule in ours.filter(|rule| !self.rules_to.contains(rule)) {
            rule.remove_in(batch);
            batch.tolerating(&[Errno::NOENT]);
            repairs.push(format!("rule for packets to {} was too much", rule.to));
        }
        let from = net::rules(socket)?;
        for rule in missing(&self.rules_from, &from) {
            rule.add_to(batch);
            batch.tolerating(&[Errno::EXIST]);
            repairs.push(format!("rule for packets from {} was missing", rule.from));
        }
        Ok(())
    }

    /// Whether there are rules of ours.
    pub(super) fn has_rules(socket: &Socket, place: Place) -> Result<bool, NetError> {
        let (to, from) = (net::destination_rules(socket)?, net::rules(socket)?);
        let has = |priority, protocol| place.has(priority, protocol);
        Ok(to.iter().any(|rule| has(rule.priority, rule.protocol))
            || from.iter().any(|rule| has(rule.priority, rule.protocol)))
    }

    /// Takes our rules away.
    pub(super) fn take_rules(socket: &Socket, place: Place) -> Result<(), NetError> {
        let mut batch = Batch::new();
        for rule in net::destination_rules(socket)? {
            if place.has(rule.priority, rule.protocol) {
                rule.remove_in(&mut batch);
                batch.tolerating(&[Errno::NOENT]);
            }
        }
        for rule in net::rules(socket)? {
            if place.has(rule.priority, rule.protocol) {
                rule.remove_in(&mut batch);
                batch.tolerating(&[Errno::NOENT]);
            }
        }
        socket.send(batch)
    }
}

fn missing<'a, T: PartialEq>(desired: &'a [T], present: &'a [T]) -> impl Iterator<Item = &'a T> {
    desired.iter().filter(|one| !present.contains(one))
}

fn both((ipv4, ipv6): (Ipv4Addr, Ipv6Addr)) -> [IpAddr; 2] {
    [ipv4.into(), ipv6.into()]
}

fn neighbours(link: u32, addresses: (Ipv4Addr, Ipv6Addr), mac: Mac) -> Vec<Neighbour> {
    let neighbour = |address| Neighbour { link, address, mac };
    both(addresses).map(neighbour).to_vec()
}

fn route(dst: IpNet, kind: RouteKind) -> Route {
    Route {
        metric: (!dst.addr().is_ipv4()).then_some(METRIC_IPV6),
        ..Route::new(dst, kind, PROTO_HEADCNI)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desired() -> Desired {
        let nets = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        Desired {
            interface: "headcni01".to_owned(),
            port: 41642,
            local: nets(&["10.244.7.0/24"]),
            cluster: nets(&["10.244.0.0/16"]),
            resolver: None,
        }
    }

    fn shown(routes: &[&Route]) -> Vec<String> {
        routes.iter().map(|route| route.dst.to_string()).collect()
    }

    #[test]
    fn inside_pods_of_others_and_the_resolver_lead_nowhere_but_by_tailscaled() {
        let side = Side::of_inside(3, &desired());
        let (lacking, extra) = side.compare_routes(&[]);
        let leading = ["0.0.0.0/0", "::/0", "10.244.7.0/24"];
        let refused = [
            "10.244.0.0/16",
            "100.100.100.100/32",
            "fd7a:115c:a1e0::53/128",
        ];
        assert_eq!(shown(&lacking), [leading, refused].concat());
        assert!(extra.is_empty());
        let is_refused = |route: &&Route| route.kind == RouteKind::Unreachable;
        let found: Vec<&Route> = side.routes.iter().filter(is_refused).collect();
        assert_eq!(shown(&found), refused);
        let metric = Some(METRIC_UNREACHABLE);
        assert!(found.iter().all(|route| route.metric == metric));
        let rules: Vec<u32> = side.rules_to.iter().map(|rule| rule.priority).collect();
        assert_eq!(rules, [5190, 5195]);
    }

    #[test]
    fn only_what_differs_is_changed_and_others_routes_stay() {
        let side = Side::of_inside(3, &desired());
        let mut present = side.routes.clone();
        let mut foreign = present[2].clone();
        foreign.protocol = 3;
        let mut former = present[2].clone();
        former.dst = "10.244.6.0/24".parse().unwrap();
        present.remove(0);
        present.extend([foreign, former]);
        let (lacking, extra) = side.compare_routes(&present);
        assert_eq!(shown(&lacking), ["0.0.0.0/0"]);
        assert_eq!(shown(&extra), ["10.244.6.0/24"]);
    }

    #[test]
    fn on_the_host_only_what_is_by_our_link_is_ours() {
        let side = Side::of_host(9);
        let mut present = side.routes.clone();
        present.push(Route {
            metric: Some(METRIC_UNREACHABLE),
            ..route("10.244.7.0/24".parse().unwrap(), RouteKind::Unreachable)
        });
        let (lacking, extra) = side.compare_routes(&present);
        assert!(lacking.is_empty() && extra.is_empty());
        assert_eq!(side.without_ipv6().routes.len(), 2);
    }

    #[test]
    fn the_host_asks_inside_for_names_of_the_mesh() {
        let side = Side::of_host(9);
        let by_gateway = side.routes.iter().filter_map(|route| match route.kind {
            RouteKind::Via {
                link: 9,
                gateway: Some(gateway),
            } => Some((route.dst.to_string(), gateway, route.table)),
            _ => None,
        });
        let [ipv4, ipv6] = both(INSIDE);
        let expected = [
            ("100.100.100.100/32".to_owned(), ipv4, TABLE_MAIN),
            ("fd7a:115c:a1e0::53/128".to_owned(), ipv6, TABLE_MAIN),
        ];
        assert_eq!(by_gateway.collect::<Vec<_>>(), expected);
    }
}
