//! The IPAM plugin and its address range.

use std::net::IpAddr;

use cni::PluginType;
use ipnet::IpNet;

use super::networks::{self, Named};
use crate::problem::Problem;
use crate::schema::{Config, Mode, Strategy};

pub(super) const HEADCNI_IPAM: &str = "headcni-ipam";
const HOST_LOCAL: &str = "host-local";

pub(super) fn problems(config: &Config) -> Vec<Problem> {
    let ipam = &config.ipam;
    let kind = ipam.kind.as_deref().unwrap_or(match config.cni.mode {
        Mode::Native => HEADCNI_IPAM,
        Mode::Bridge => HOST_LOCAL,
    });
    let mut problems = Vec::new();
    if PluginType::new("type", kind).is_err() {
        problems.push(Problem::new(
            "ipam.type",
            "not a plugin name: use letters, digits, \"_\", \".\" and \"-\", as in headcni-ipam",
        ));
    } else if kind == "headcni" {
        problems.push(Problem::new(
            "ipam.type",
            "headcni is not an IPAM plugin: use headcni-ipam",
        ));
    }
    if kind != HEADCNI_IPAM && ipam.strategy != Strategy::Sequential {
        problems.push(
            Problem::new(
                "ipam.strategy",
                format!(
                    "{} is a strategy of headcni-ipam, but the IPAM plugin is {}: remove strategy, or set \
                     ipam.type to headcni-ipam",
                    ipam.strategy.name(),
                    if kind == HOST_LOCAL {
                        HOST_LOCAL
                    } else {
                        "another plugin"
                    },
                ),
            )
            .at("ipam.strategy"),
        );
    }
    let given = [
        ("ipam.rangeStart", ipam.range_start),
        ("ipam.rangeEnd", ipam.range_end),
        ("ipam.gateway", ipam.gateway),
    ];
    let given: Vec<(&str, IpAddr)> = given
        .into_iter()
        .filter_map(|(key, address)| Some((key, address?)))
        .collect();
    if kind != HEADCNI_IPAM && kind != HOST_LOCAL {
        problems.extend(given.iter().map(|(key, _)| {
            Problem::new(
                *key,
                "only headcni-ipam and host-local support it: remove it, or set ipam.type to \
                 headcni-ipam",
            )
        }));
    }
    problems.extend(order(config));
    let nets = nets(config);
    problems.extend(given.iter().filter_map(|(key, address)| {
        let text = misplaced(*address, &nets).or_else(|| edge(key, *address, &nets))?;
        Some(Problem::new(*key, text))
    }));
    problems
}

/// The CIDRs that must contain an address: pod CIDRs if they are configured, else cluster CIDRs.
fn nets(config: &Config) -> Vec<Named> {
    let mut nets = networks::local(&config.network);
    nets.extend(networks::of_nodes(&config.network));
    if nets.is_empty() {
        nets = networks::base(&config.network);
    }
    nets
}

fn order(config: &Config) -> Option<Problem> {
    let (first, last) = (config.ipam.range_start?, config.ipam.range_end?);
    let text = if first.is_ipv4() != last.is_ipv4() {
        format!("{last} has another IP family than rangeStart {first}: use one family")
    } else if first > last {
        format!("{last} is before rangeStart {first}: swap them")
    } else {
        return None;
    };
    Some(Problem::new("ipam.rangeEnd", text))
}

fn misplaced(address: IpAddr, nets: &[Named]) -> Option<String> {
    if nets.is_empty() {
        return None;
    }
    let is_of_family = |named: &&Named| matches!(named.net, IpNet::V4(_)) == address.is_ipv4();
    let mut of_family = nets.iter().filter(is_of_family).peekable();
    if of_family.peek().is_none() {
        return Some(format!(
            "{address} has another IP family than {} {}: use an address in {}",
            nets[0].key, nets[0].net, nets[0].net
        ));
    }
    let excluding = of_family.find(|named| !named.net.contains(&address))?;
    Some(format!(
        "{address} is outside {} {}: use an address in it, or remove the key",
        excluding.key, excluding.net
    ))
}

/// The gateway can't be the network address, or the broadcast address of IPv4.
fn edge(key: &str, address: IpAddr, nets: &[Named]) -> Option<String> {
    if key != "ipam.gateway" {
        return None;
    }
    let named = nets.iter().find(|named| named.net.contains(&address))?;
    let net = named.net;
    let what = if address == net.network() {
        "the network address"
    } else if address == net.broadcast() && address.is_ipv4() {
        "the broadcast address"
    } else {
        return None;
    };
    Some(format!("{address} is {what}: use another address in {net}"))
}
