//! The node's networks in the order of families, without a contradiction.

use std::net::IpAddr;

use ipnet::IpNet;

use super::super::document::Range;
use super::super::error::CniConfError;
use node_config::Config;

/// IPAM plugins that are told which addresses to give.
pub(super) const RANGE_PLUGINS: [&str; 2] = ["headcni-ipam", "host-local"];

/// Who has which addresses; of each at most one network per family, IPv4 before IPv6.
#[derive(Debug)]
pub(super) struct Addresses {
    /// This node's pods.
    pub(super) local: Vec<IpNet>,
    /// All pods; as many families as `local`.
    pub(super) base: Vec<IpNet>,
    /// Services.
    pub(super) services: Vec<IpNet>,
    /// What of each `local` is given to pods.
    pub(super) ranges: Vec<Range>,
}

impl Addresses {
    pub(super) fn new(
        config: &Config,
        local: &[IpNet],
        base: &[IpNet],
    ) -> Result<Self, CniConfError> {
        let local = in_order("this node's PodCIDR", local)?;
        if local.is_empty() {
            let trouble = "is not known: say it by network.podCIDR.nodeLocal";
            return Err(CniConfError::setting("this node's PodCIDR", "", trouble));
        }
        let given = in_order("network.podCIDR.base", base)?;
        let services = in_order("network.serviceCIDR", &config.network.service_cidr.0)?;
        let base_of = |net: &IpNet| given.iter().find(|base| is_same_family(base, net));
        let base = local.iter().map(|net| *base_of(net).unwrap_or(net));
        let addresses = Self {
            base: base.collect(),
            ranges: ranges(config, &local)?,
            services,
            local,
        };
        addresses.refuse_contradictions(config)?;
        Ok(addresses)
    }

    pub(super) fn has_ipv6(&self) -> bool {
        self.local.iter().any(|net| net.addr().is_ipv6())
    }

    /// The cluster's network that a network of this node is a part of.
    pub(super) fn base_of(&self, local: &IpNet) -> Option<IpNet> {
        self.base
            .iter()
            .find(|base| is_same_family(base, local))
            .copied()
    }

    fn refuse_contradictions(&self, config: &Config) -> Result<(), CniConfError> {
        for (local, base) in self.local.iter().zip(&self.base) {
            if !base.contains(local) {
                let trouble = format!(
                    "has not this node's PodCIDR {local} in it: change one of them, or remove the \
                     former"
                );
                return Err(CniConfError::setting("network.podCIDR.base", base, trouble));
            }
            let overlaps = |service: &&IpNet| service.contains(base) || base.contains(*service);
            if let Some(service) = self.services.iter().find(overlaps) {
                let trouble = format!("overlaps pods' addresses {base}: change one of them");
                return Err(CniConfError::setting(
                    "network.serviceCIDR",
                    service,
                    trouble,
                ));
            }
        }
        match config.network.enable_ipv6 {
            Some(true) if !self.has_ipv6() => Err(CniConfError::setting(
                "network.enableIPv6",
                "true",
                "needs an IPv6 network for this node's pods: give it one, or remove the setting",
            )),
            Some(false) if self.has_ipv6() => Err(CniConfError::setting(
                "network.enableIPv6",
                "false",
                "contradicts this node's PodCIDR, which has an IPv6 network: remove one of them",
            )),
            _ => Ok(()),
        }
    }
}

fn is_same_family(a: &IpNet, b: &IpNet) -> bool {
    a.addr().is_ipv4() == b.addr().is_ipv4()
}

fn in_order(key: &'static str, nets: &[IpNet]) -> Result<Vec<IpNet>, CniConfError> {
    let mut nets: Vec<IpNet> = nets.iter().map(IpNet::trunc).collect();
    nets.sort_by_key(|net| net.addr().is_ipv6());
    nets.dedup();
    for pair in nets.windows(2) {
        if is_same_family(&pair[0], &pair[1]) {
            let trouble = "has two networks of one IP family: it may have one of each";
            return Err(CniConfError::setting(key, both_families(&nets), trouble));
        }
    }
    for net in &nets {
        if let Some(special) = net::special_purpose(net) {
            let trouble = format!("overlaps {}, which is {}", special.net, special.purpose);
            return Err(CniConfError::setting(key, net, trouble));
        }
    }
    Ok(nets)
}

/// As the plugin's keys have it.
pub(super) fn both_families(nets: &[IpNet]) -> String {
    nets.iter()
        .map(IpNet::to_string)
        .collect::<Vec<_>>()
        .join(",")
}

/// What of each network is given to pods: a setting belongs to the network that it lies in.
fn ranges(config: &Config, local: &[IpNet]) -> Result<Vec<Range>, CniConfError> {
    let settings = [
        ("ipam.rangeStart", config.ipam.range_start),
        ("ipam.rangeEnd", config.ipam.range_end),
        ("ipam.gateway", config.ipam.gateway),
    ];
    for (key, address) in settings {
        if let Some(address) = address
            && !local.iter().any(|net| net.contains(&address))
        {
            let trouble = format!("is not in this node's PodCIDR {}", both_families(local));
            return Err(CniConfError::setting(key, address, trouble));
        }
    }
    let inside = |net: &IpNet, address: Option<IpAddr>| address.filter(|ip| net.contains(ip));
    let range = |net: &IpNet| Range {
        subnet: *net,
        first: inside(net, config.ipam.range_start),
        last: inside(net, config.ipam.range_end),
        gateway: inside(net, config.ipam.gateway),
    };
    Ok(local.iter().map(range).collect())
}
