//! Managed links and routes to pods, as the kernel has them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use net::{Link, Mac, Neighbour, NetError, PROTO_HEADCNI, Route, RouteKind, Socket, TABLE_MAIN};
use ruleset::LINK_GROUP;

use super::key::Key;
use super::orphan_policy::Presence;

/// `lo` has this index in every netns.
const LO_INDEX: u32 = 1;

#[derive(Clone, Debug, Default)]
pub(super) struct KernelState {
    /// Managed links by name.
    links: BTreeMap<String, ManagedLink>,
    /// Link names by the attachment in their alias.
    labelled: BTreeMap<Key, String>,
    /// Prefixes of unmanaged links, and host routes.
    destinations: Vec<IpNet>,
    /// Destinations of our routes via unmanaged links.
    pub(super) stray_routes: Vec<IpAddr>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ManagedLink {
    /// From the alias.
    pub(super) key: Option<Key>,
    pub(super) host_mac: Option<Mac>,
    pub(super) pod_mac: Option<Mac>,
    /// Destinations of our routes via it.
    pub(super) addresses: Vec<IpAddr>,
}

impl KernelState {
    /// Reads everything in the netns of this thread.
    pub(super) fn read() -> Result<Self, NetError> {
        let socket = Socket::route()?;
        let links = net::links(&socket)?;
        let addresses = net::addresses(&socket)?;
        let routes = net::routes(&socket)?;
        let neighbours = net::permanent_neighbours(&socket)?;
        let mut kernel = Self::of(&links, &addresses, &routes);
        kernel.add_neighbours(&links, &neighbours);
        Ok(kernel)
    }

    /// Reads only the link of one attachment.
    pub(super) fn read_one(key: &Key) -> Result<Self, NetError> {
        let link = net::link(&Socket::route()?, &key.host_link())?;
        let links: Vec<Link> = link.into_iter().collect();
        Ok(Self::of(&links, &[], &[]))
    }

    fn of(links: &[Link], addresses: &[net::Address], routes: &[Route]) -> Self {
        let mut kernel = Self::default();
        let mut own = BTreeMap::new();
        for link in links {
            let key = attachment::link::parse_alias(&link.name, &link.kind, &link.alias)
                .and_then(|label| Key::new(label.network, label.container, label.ifname));
            if key.is_none() && !is_unlabelled(link) {
                continue;
            }
            own.insert(link.index, link.name.as_str());
            if let Some(key) = &key {
                kernel.labelled.insert(key.clone(), link.name.clone());
            }
            let one = ManagedLink {
                key,
                host_mac: link.mac,
                ..ManagedLink::default()
            };
            kernel.links.insert(link.name.clone(), one);
        }
        let is_managed = |link: u32| own.contains_key(&link);
        let of_links = addresses.iter().filter(|address| {
            // `lo` only has the gateways.
            address.link != LO_INDEX && !is_managed(address.link)
        });
        kernel
            .destinations
            .extend(of_links.map(|address| address.net.trunc()));
        for route in routes.iter().filter(|route| route.table == TABLE_MAIN) {
            let RouteKind::Via { link, gateway } = route.kind else {
                continue;
            };
            let is_to_one = route.dst.prefix_len() == route.dst.max_prefix_len();
            if is_to_one || (gateway.is_none() && route.dst.prefix_len() > 0) {
                kernel.destinations.push(route.dst.trunc());
            }
            if !is_to_one || route.protocol != PROTO_HEADCNI {
                continue;
            }
            match own.get(&link).and_then(|name| kernel.links.get_mut(*name)) {
                Some(link) => link.addresses.push(route.dst.addr()),
                None => kernel.stray_routes.push(route.dst.addr()),
            }
        }
        kernel
    }

    fn add_neighbours(&mut self, links: &[Link], neighbours: &[Neighbour]) {
        let names: BTreeMap<u32, &str> = links
            .iter()
            .map(|link| (link.index, link.name.as_str()))
            .collect();
        for neighbour in neighbours {
            let name = names.get(&neighbour.link);
            if let Some(link) = name.and_then(|name| self.links.get_mut(*name)) {
                link.pod_mac = Some(neighbour.mac);
            }
        }
    }

    pub(super) fn link_of(&self, key: &Key) -> Presence {
        match self.managed_link(key) {
            Some(_) => Presence::Present,
            None => Presence::Absent,
        }
    }

    /// The managed link of an attachment, and its name.
    pub(super) fn managed_link(&self, key: &Key) -> Option<(&str, &ManagedLink)> {
        let by_name = self.links.get_key_value(&key.host_link());
        let by_label = || self.links.get_key_value(self.labelled.get(key)?);
        let (name, link) = by_name.or_else(by_label)?;
        Some((name, link))
    }

    pub(super) fn labelled(&self) -> impl Iterator<Item = &Key> {
        self.labelled.keys()
    }

    /// Whether an unmanaged link or a host route serves an address.
    pub(super) fn route_to(&self, address: IpAddr) -> Presence {
        let is_there = self
            .destinations
            .iter()
            .any(|network| network.contains(&address));
        if is_there {
            Presence::Present
        } else {
            Presence::Absent
        }
    }

    pub(super) fn links_without_record<'a>(
        &'a self,
        known: &BTreeSet<&Key>,
        names: &BTreeSet<String>,
    ) -> Vec<&'a str> {
        let is_known = |name: &String, link: &ManagedLink| {
            names.contains(name) || link.key.as_ref().is_some_and(|key| known.contains(key))
        };
        self.links
            .iter()
            .filter(|(name, link)| !is_known(name, link))
            .map(|(name, _)| name.as_str())
            .collect()
    }
}

#[cfg(test)]
impl KernelState {
    pub(super) fn with_links(keys: &[&Key]) -> Self {
        let mut kernel = Self::default();
        for key in keys {
            let link = ManagedLink {
                key: Some((*key).clone()),
                ..ManagedLink::default()
            };
            kernel.labelled.insert((*key).clone(), key.host_link());
            kernel.links.insert(key.host_link(), link);
        }
        kernel
    }
}

/// A managed link whose alias is not set yet.
fn is_unlabelled(link: &Link) -> bool {
    link.group == LINK_GROUP && link.name.starts_with("hc") && link.kind == "veth"
}

#[cfg(test)]
mod tests {
    use net::Address;

    use super::*;

    fn link(index: u32, name: &str, group: u32, alias: &str) -> Link {
        Link {
            index,
            name: name.to_owned(),
            is_up: true,
            mac: None,
            mtu: 1280,
            group,
            kind: "veth".to_owned(),
            alias: alias.to_owned(),
        }
    }

    fn via(dst: &str, link: u32, gateway: Option<&str>, protocol: u8) -> Route {
        let gateway = gateway.map(|gateway| gateway.parse().unwrap());
        Route::new(
            dst.parse().unwrap(),
            RouteKind::Via { link, gateway },
            protocol,
        )
    }

    fn key(container: &str) -> Key {
        Key::new("net", container, "eth0").unwrap()
    }

    #[test]
    fn a_managed_link_is_found_by_name_or_alias() {
        let by_name = key("a").host_link();
        let links = [
            link(7, &by_name, LINK_GROUP, ""),
            link(8, "hcrenamed", 0, "headcni net b eth0"),
            link(9, &key("c").host_link(), 0, ""),
            link(10, "veth0", LINK_GROUP, ""),
        ];
        let kernel = KernelState::of(&links, &[], &[]);
        assert_eq!(kernel.link_of(&key("a")), Presence::Present);
        assert_eq!(kernel.link_of(&key("b")), Presence::Present);
        assert_eq!(kernel.link_of(&key("c")), Presence::Absent, "unmanaged");
        let (b, names) = (key("b"), BTreeSet::new());
        let beside = kernel.links_without_record(&BTreeSet::from([&b]), &names);
        assert_eq!(beside, [by_name.as_str()]);
    }

    #[test]
    fn routes_and_links_to_an_address_are_found() {
        let address = |link, net: &str| Address {
            link,
            net: net.parse().unwrap(),
        };
        let addresses = [
            address(LO_INDEX, "10.1.0.1/32"),
            address(3, "10.2.0.1/24"),
            address(7, "10.3.0.1/24"),
        ];
        let routes = [
            via("10.4.0.9/32", 3, Some("192.0.2.1"), 3),
            via("10.5.0.0/16", 3, Some("192.0.2.1"), 3),
            via("10.6.0.0/16", 3, None, 3),
            via("0.0.0.0/0", 3, None, 3),
        ];
        let links = [link(7, "hc7", LINK_GROUP, "")];
        let kernel = KernelState::of(&links, &addresses, &routes);
        for (address, is_there) in [
            ("10.1.0.1", false),
            ("10.2.0.7", true),
            ("10.3.0.7", false),
            ("10.4.0.9", true),
            ("10.4.0.8", false),
            ("10.5.0.1", false),
            ("10.6.0.1", true),
        ] {
            let presence = kernel.route_to(address.parse().unwrap());
            assert_eq!(presence == Presence::Present, is_there, "{address}");
        }
    }

    #[test]
    fn our_route_via_an_unmanaged_link_is_a_stray() {
        let links = [link(7, "hc7", LINK_GROUP, ""), link(3, "eth0", 0, "")];
        let routes = [
            via("10.1.0.2/32", 7, None, PROTO_HEADCNI),
            via("10.1.0.3/32", 3, None, PROTO_HEADCNI),
            via("10.1.0.4/32", 3, None, 3),
            via("10.2.0.0/24", 3, None, PROTO_HEADCNI),
        ];
        let kernel = KernelState::of(&links, &[], &routes);
        assert_eq!(kernel.stray_routes, ["10.1.0.3".parse::<IpAddr>().unwrap()]);
    }
}
