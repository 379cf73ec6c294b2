//! Plans a pod network before anything is changed.
//!
//! Pure: attachment, configuration and leases go in; names, hardware addresses, routes and the CNI
//! result come out.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use attachment::{NativeConf, link};
use cni::{Attachment, Dns, Error, Interface, IpConfig, NetResult};
use ipnet::IpNet;
use net::Mac;
use serde_json::Map;

use super::apply::RouteTable;

/// The next hop if IPAM sets no gateway. The host doesn't need the address, because the pod gets a
/// permanent neighbour entry for it.
const DEFAULT_GATEWAY_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(169, 254, 1, 1));
const DEFAULT_GATEWAY_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1));

/// Our interface indexes start far above those that the kernel assigns.
const FIRST_INDEX: u32 = 1 << 28;
const SCOPE_LINK: u32 = 253;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PodNetwork {
    pub(crate) host_name: String,
    pub(crate) pod_name: String,
    pub(crate) host_mac: Mac,
    pub(crate) pod_mac: Mac,
    pub(crate) mtu_bytes: u32,
    pub(crate) addresses: Vec<PodAddress>,
    pub(crate) routes: Vec<PodRoute>,
    dns: Dns,
    /// The routes of IPAM, or default routes if it has none.
    result_routes: Vec<cni::Route>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PodAddress {
    pub(crate) net: IpNet,
    /// The node gets this address.
    pub(crate) gateway: Option<IpAddr>,
}

impl From<&IpConfig> for PodAddress {
    fn from(stated: &IpConfig) -> Self {
        Self {
            net: stated.address,
            gateway: stated.gateway,
        }
    }
}

impl PodAddress {
    pub(crate) fn ip(&self) -> IpAddr {
        self.net.addr()
    }

    fn next_hop(&self) -> IpAddr {
        self.gateway.unwrap_or(match self.net {
            IpNet::V4(_) => DEFAULT_GATEWAY_V4,
            IpNet::V6(_) => DEFAULT_GATEWAY_V6,
        })
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PodRoute {
    pub(crate) stated: cni::Route,
    pub(crate) next_hop: IpAddr,
}

impl PodNetwork {
    pub(crate) fn plan(
        to: &Attachment,
        conf: &NativeConf,
        leased: NetResult,
    ) -> Result<Self, Error> {
        let addresses: Vec<PodAddress> = leased.ips.iter().map(PodAddress::from).collect();
        let Some(first) = addresses.first() else {
            return Err(Error::config("ipam returned no address for the pod"));
        };
        if let Some(wrong) = addresses
            .iter()
            .find(|address| address.net.addr().is_ipv6() && conf.enable_ipv6 == Some(false))
        {
            return Err(Error::config(format!(
                "ipam returned {}, but enable_ipv6 is false: remove one of them",
                wrong.net
            )));
        }
        let result_routes = if leased.routes.is_empty() {
            default_routes(&addresses)
        } else {
            leased.routes
        };
        let routes = result_routes
            .iter()
            .map(|route| PodRoute {
                stated: route.clone(),
                next_hop: route
                    .gw
                    .unwrap_or_else(|| next_hop_to(&addresses, route.dst)),
            })
            .chain(routes_to_own_subnets(&addresses, &result_routes));
        Ok(Self {
            host_name: link::host_name(&to.container, &to.ifname),
            pod_name: to.ifname.to_string(),
            host_mac: host_mac(to),
            pod_mac: conf.mac.unwrap_or_else(|| mac_of(first.ip())),
            mtu_bytes: conf.mtu,
            routes: routes.collect(),
            addresses,
            dns: leased.dns,
            result_routes,
        })
    }

    /// All next hops of the pod.
    pub(crate) fn next_hops(&self) -> Vec<IpAddr> {
        let mut hops: Vec<IpAddr> = Vec::new();
        let of_addresses = self.addresses.iter().map(PodAddress::next_hop);
        let of_routes = self.routes.iter().map(|route| route.next_hop);
        for hop in of_addresses.chain(of_routes) {
            if !hops.contains(&hop) {
                hops.push(hop);
            }
        }
        hops
    }

    /// The gateway addresses, which the node gets.
    pub(crate) fn gateways(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.iter().filter_map(|address| address.gateway)
    }

    pub(crate) fn has_ipv6(&self) -> bool {
        self.addresses
            .iter()
            .any(|address| address.net.addr().is_ipv6())
    }

    pub(crate) fn ips(&self) -> Vec<IpAddr> {
        self.addresses.iter().map(PodAddress::ip).collect()
    }

    /// The CNI result.
    pub(crate) fn result(
        &self,
        netns: &str,
        table: RouteTable,
        previous: Option<NetResult>,
    ) -> NetResult {
        let mut result = previous.unwrap_or_default();
        let pod_interface = result.interfaces.len() + 1;
        let interface = |name: &str, mac: Mac, sandbox: Option<&str>| Interface {
            name: name.to_owned(),
            mac: Some(mac.to_string()),
            mtu: Some(self.mtu_bytes),
            sandbox: sandbox.map(str::to_owned),
            ..Interface::default()
        };
        result.interfaces.extend([
            interface(&self.host_name, self.host_mac, None),
            interface(&self.pod_name, self.pod_mac, Some(netns)),
        ]);
        result
            .ips
            .extend(self.addresses.iter().map(|address| IpConfig {
                interface: Some(pod_interface),
                address: address.net,
                gateway: address.gateway,
                extra: Map::new(),
            }));
        let mut routes = self.result_routes.clone();
        if let RouteTable::Own(table) = table {
            for route in &mut routes {
                route.table.get_or_insert(table);
            }
        }
        result.routes.append(&mut routes);
        if result.dns.is_empty() {
            result.dns = self.dns.clone();
        }
        result
    }
}

/// Interface indexes of the `attempt`th try, on the host and in the pod.
pub(crate) fn indexes(of: &Attachment, attempt: u32) -> (u32, u32) {
    let hash = hash_of(of).rotate_left(attempt * 7);
    let [a, b, c, d, ..] = hash.to_be_bytes();
    let host = FIRST_INDEX | (u32::from_be_bytes([a, b, c, d]) >> 5);
    (host, host + FIRST_INDEX)
}

/// Whether an interface index can be ours.
pub(crate) fn is_index(number: u32) -> bool {
    number >= FIRST_INDEX
}

fn hash_of(attachment: &Attachment) -> u64 {
    link::hash(&attachment.container, &attachment.ifname)
}

fn host_mac(of: &Attachment) -> Mac {
    let [_, _, octets @ ..] = hash_of(of).to_be_bytes();
    Mac::local(octets)
}

/// A hardware address derived from the IP, so that neighbour entries stay valid when it is reused.
fn mac_of(address: IpAddr) -> Mac {
    let [a, b, c, d] = match address {
        IpAddr::V4(address) => address.octets(),
        IpAddr::V6(address) => {
            let mut folded = [0; 4];
            for (index, octet) in address.octets().iter().enumerate() {
                folded[index % 4] ^= octet;
            }
            folded
        }
    };
    Mac::local([0x0a, 0x58, a, b, c, d])
}

/// A default route per family.
fn default_routes(addresses: &[PodAddress]) -> Vec<cni::Route> {
    let mut routes: Vec<cni::Route> = Vec::new();
    for address in addresses {
        let dst = default_destination(address.ip());
        if !routes.iter().any(|route| route.dst == dst) {
            routes.push(cni::Route {
                gw: address.gateway,
                ..cni::Route::to(dst)
            });
        }
    }
    routes
}

/// Routes to the pod's own subnets, unless other routes cover them: without a bridge, pods of the
/// same subnet are behind the gateway too.
fn routes_to_own_subnets(
    addresses: &[PodAddress],
    stated: &[cni::Route],
) -> impl Iterator<Item = PodRoute> {
    addresses.iter().filter_map(|address| {
        let subnet = address.net.trunc();
        let is_single_address = subnet.prefix_len() == subnet.max_prefix_len();
        let is_covered = stated.iter().any(|route| route.dst.contains(&subnet));
        (!is_single_address && !is_covered).then(|| PodRoute {
            stated: cni::Route::to(subnet),
            next_hop: address.next_hop(),
        })
    })
}

/// The next hop of a route without one: the gateway of an address of its family.
fn next_hop_to(addresses: &[PodAddress], dst: IpNet) -> IpAddr {
    let is_of_family = |address: &&PodAddress| address.net.addr().is_ipv4() == dst.addr().is_ipv4();
    let unnamed = PodAddress {
        net: dst,
        gateway: None,
    };
    addresses
        .iter()
        .find(is_of_family)
        .unwrap_or(&unnamed)
        .next_hop()
}

/// The destination of the default route of an IP family.
pub(crate) fn default_destination(like: IpAddr) -> IpNet {
    match like {
        IpAddr::V4(_) => IpNet::V4(ipnet::Ipv4Net::default()),
        IpAddr::V6(_) => IpNet::V6(ipnet::Ipv6Net::default()),
    }
}

impl PodRoute {
    pub(crate) fn to_kernel(&self, link: u32, protocol: u8) -> net::Route {
        let stated = &self.stated;
        let kind = net::RouteKind::Via {
            link,
            gateway: Some(self.next_hop),
        };
        let mut route = net::Route::new(stated.dst.trunc(), kind, protocol);
        route.metric = stated.priority;
        route.mtu = stated.mtu;
        route.advmss = stated.advmss;
        route.table = stated.table.unwrap_or(net::TABLE_MAIN);
        // Only the node is on the link, so that routes of scope link go through it too.
        route.scope = stated
            .scope
            .filter(|scope| *scope < SCOPE_LINK)
            .and_then(|scope| u8::try_from(scope).ok());
        route
    }
}

#[cfg(test)]
mod tests;
