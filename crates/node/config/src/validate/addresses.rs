//! The part of the node's network that pods get, and who gives it to them.

use std::net::IpAddr;

use cni::PluginType;
use ipnet::IpNet;

use super::networks::{self, Named};
use crate::problem::Problem;
use crate::schema::{Config, Mode, Strategy};

pub(super) const OWN: &str = "headcni-ipam";
const HOST_LOCAL: &str = "host-local";

pub(super) fn problems(config: &Config) -> Vec<Problem> {
    let ipam = &config.ipam;
    let kind = ipam.kind.as_deref().unwrap_or(match config.cni.mode {
        Mode::Native => OWN,
        Mode::Bridge => HOST_LOCAL,
    });
    let mut problems = Vec::new();
    if PluginType::new("type", kind).is_err() {
        problems.push(Problem::new(
            "ipam.type",
            "not a plugin's name: letters, digits, \"_\", \".\" and \"-\", as headcni-ipam",
        ));
    } else if kind == "headcni" {
        problems.push(Problem::new(
            "ipam.type",
            "headcni makes networks and gives no addresses: headcni-ipam does",
        ));
    }
    if kind != OWN && ipam.strategy != Strategy::Sequential {
        problems.push(
            Problem::new(
                "ipam.strategy",
                format!(
                    "{} is headcni-ipam's, and {} gives the addresses: take strategy away, or set \
                     ipam.type to headcni-ipam",
                    ipam.strategy.name(),
                    if kind == HOST_LOCAL {
                        HOST_LOCAL
                    } else {
                        "another plugin"
                    },
                ),
            )
            .look_at("ipam.strategy"),
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
    if kind != OWN && kind != HOST_LOCAL {
        problems.extend(given.iter().map(|(key, _)| {
            Problem::new(
                *key,
                "only headcni-ipam and host-local know it: take it away, or set ipam.type to \
                 headcni-ipam",
            )
        }));
    }
    problems.extend(order(config));
    let nets = nets(config);
    problems.extend(given.iter().filter_map(|(key, address)| {
        let trouble = misplaced(*address, &nets).or_else(|| edge(key, *address, &nets))?;
        Some(Problem::new(*key, trouble))
    }));
    problems
}

/// The networks that an address must be in: the node's if they are known, else the cluster's.
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
        format!("{last} is of another IP family than rangeStart {first}: write both in one")
    } else if first > last {
        format!("{last} is before rangeStart {first}: exchange them")
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
            "{address} is of another IP family than {} {}: take one of {}",
            nets[0].key, nets[0].net, nets[0].net
        ));
    }
    let stray = of_family.find(|named| !named.net.contains(&address))?;
    Some(format!(
        "{address} is outside of {} {}: take an address in it, or take the key away",
        stray.key, stray.net
    ))
}

/// The first and last address of an IPv4 network are nobody's; of an IPv6 network, the first.
fn edge(key: &str, address: IpAddr, nets: &[Named]) -> Option<String> {
    if key != "ipam.gateway" {
        return None;
    }
    let named = nets.iter().find(|named| named.net.contains(&address))?;
    let net = named.net;
    let what = if address == net.network() {
        "the network's own address"
    } else if address == net.broadcast() && address.is_ipv4() {
        "the network's broadcast address"
    } else {
        return None;
    };
    Some(format!("{address} is {what}: take another one of {net}"))
}
