//! The lower bound of an ADD or DEL of the routed veth: one process and the kernel's work.
//!
//! `floor add NETNS HOST_NAME (POD_ADDRESS GATEWAY)…` and `floor del HOST_NAME`, without configuration,
//! IPAM and result. `make bench` compares the plugin with it, so it sends the kernel the same messages
//! as the plugin.

use std::error::Error;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::{env, process};

use ipnet::IpNet;
use net::{
    Address, Batch, Errno, Ipv4Conf, LinkSettings, Mac, Neighbour, Netns, PROTO_HEADCNI, Route,
    RouteKind, Socket, VethEnd, VethPair, delete_link, sysctl,
};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const LOOPBACK: u32 = 1;
const MTU: u32 = 1280;
/// `ruleset::LINK_GROUP`, whose crate is above this one.
const LINK_GROUP: u32 = 26723;

fn main() -> Outcome {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["add", netns, host, pairs @ ..] => add(netns, host, &parse(pairs)?),
        ["del", host] => Ok(delete_link(&Socket::route()?, host).map(drop)?),
        _ => Err(
            "usage: floor add NETNS HOST_NAME (POD_ADDRESS GATEWAY)… | floor del HOST_NAME".into(),
        ),
    }
}

/// An address of the pod with its prefix length, and its gateway.
type Pair = (IpNet, IpAddr);

fn parse(args: &[&str]) -> Outcome<Vec<Pair>> {
    let pairs = args.chunks_exact(2);
    pairs
        .map(|pair| Ok((pair[0].parse()?, pair[1].parse()?)))
        .collect()
}

fn add(netns: &str, host: &str, pairs: &[Pair]) -> Outcome {
    let (home, pod) = (Netns::current()?, Netns::open(netns)?);
    let id = process::id();
    let [_, b, c, d] = id.to_be_bytes();
    let veth = VethPair {
        host: VethEnd {
            name: host,
            index: 0x1000_0000 + id,
            mac: Mac::local([2, 0, 0, b, c, d]),
        },
        pod: VethEnd {
            name: "eth0",
            index: 0x2000_0000 + id,
            mac: Mac::local([2, 0, 1, b, c, d]),
        },
        netns: pod.as_fd(),
        mtu: MTU,
        group: LINK_GROUP,
    };
    let has_ipv6 = pairs.iter().any(|(_, gateway)| gateway.is_ipv6());
    let host_socket = Socket::route()?;

    pod.visit(&home, || -> Outcome {
        let pod_socket = Socket::route()?;
        let mut batch = Batch::new();
        veth.add_to(&mut batch);
        host_socket.send(batch)?;
        if has_ipv6 {
            sysctl::set("ipv6/conf/eth0/accept_ra", "0")?;
            sysctl::set("ipv6/conf/eth0/accept_redirects", "0")?;
        }
        Ok(pod_socket.send(pod_batch(&veth, pairs)?)?)
    })??;
    if has_ipv6 {
        sysctl::set(&format!("ipv6/conf/{host}/accept_ra"), "0")?;
        sysctl::set(&format!("ipv6/conf/{host}/accept_redirects"), "0")?;
    } else {
        sysctl::set(&format!("ipv6/conf/{host}/disable_ipv6"), "1")?;
    }
    Ok(host_socket.send(host_batch(&veth, pairs, has_ipv6))?)
}

/// Pod: addresses, link up, routes.
fn pod_batch(veth: &VethPair<'_>, pairs: &[Pair]) -> Outcome<Batch> {
    let link = veth.pod.index;
    let mut batch = Batch::new();
    for (net, _) in pairs {
        let net = *net;
        Address { link, net }.add_to(&mut batch);
    }
    batch.set_up(link);
    for (_, gateway) in pairs {
        let (address, mac) = (*gateway, veth.host.mac);
        Neighbour { link, address, mac }.add_to(&mut batch);
        Route::new(address.into(), via(link, None), PROTO_HEADCNI).add_to(&mut batch);
    }
    for (_, gateway) in pairs {
        let all = match gateway {
            IpAddr::V4(_) => "0.0.0.0/0",
            IpAddr::V6(_) => "::/0",
        };
        Route::new(all.parse()?, via(link, Some(*gateway)), PROTO_HEADCNI).add_to(&mut batch);
    }
    Ok(batch)
}

/// Host: link up, gateway addresses on `lo`, a route and a neighbour entry for each pod address.
fn host_batch(veth: &VethPair<'_>, pairs: &[Pair], has_ipv6: bool) -> Batch {
    let link = veth.host.index;
    let mut batch = Batch::new();
    LinkSettings {
        alias: Some("headcni floor pod eth0"),
        ipv4: &[
            (Ipv4Conf::Forwarding, 1),
            (Ipv4Conf::AcceptRedirects, 0),
            (Ipv4Conf::SendRedirects, 0),
            (Ipv4Conf::RpFilter, 0),
            (Ipv4Conf::AcceptLocal, 1),
            (Ipv4Conf::RouteLocalnet, 0),
        ],
        addr_gen_mode_none: has_ipv6,
    }
    .add_to(&mut batch, link);
    batch.set_up(link);
    for (_, gateway) in pairs {
        let (link, net) = (LOOPBACK, (*gateway).into());
        Address { link, net }.add_to(&mut batch);
        batch.tolerating(&[Errno::EXIST]);
    }
    for (net, _) in pairs {
        let (address, mac) = (net.addr(), veth.pod.mac);
        Route::new(address.into(), via(link, None), PROTO_HEADCNI).replace_in(&mut batch);
        Neighbour { link, address, mac }.add_to(&mut batch);
    }
    batch
}

fn via(link: u32, gateway: Option<IpAddr>) -> RouteKind {
    RouteKind::Via { link, gateway }
}
