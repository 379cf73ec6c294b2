//! A pod whose address is in none of its node's networks has a route of its own, as long as it lives.

use std::fs;
use std::net::IpAddr;

use lab::{Call, Cluster, Grounds, JOINED, Member, Site, eventually, tools};
use serde_json::{Value, json};

use crate::{talk, turn};

const ADDRESS: &str = "10.244.200.9";

#[test]
fn an_address_outside_the_nodes_networks_has_a_route_as_long_as_its_pod_lives() {
    let _turn = turn::take();
    let grounds = Grounds::new(&[Site::Open, Site::Open]).unwrap();
    let mut cluster = Cluster::new(&grounds).unwrap();
    cluster.start().unwrap();
    let (first, second) = (&cluster.members[0], &cluster.members[1]);
    let (neighbour, remote) = (first.pod("n").unwrap(), second.pod("r").unwrap());
    let pod = first.node.pod("o").unwrap();
    let conf = conf(first);
    let call = |verb: &str| {
        let call = Call::new(verb).path("/opt/cni/bin").pod(&pod).conf(&conf);
        call.run(first.node, tools::headcni()).unwrap()
    };
    let result = call("ADD").ok_json().unwrap();
    assert!(result.to_string().contains(ADDRESS), "{result}");

    let ip: IpAddr = ADDRESS.parse().unwrap();
    let served = || routes(&cluster, "subnet_routes").contains(&format!("{ADDRESS}/32"));
    eventually(JOINED, "its own route is served", || served().then_some(()))
        .unwrap_or_else(|error| panic!("{error:#}\n{}", first.told()));
    for from in [&neighbour, &remote] {
        let seen = eventually(JOINED, "it is reached", || {
            talk::tcp(&from.pod, &pod, ip).ok()
        });
        let seen = seen.unwrap_or_else(|error| panic!("{error:#}\n{}", first.told()));
        assert!(from.ips.contains(&seen), "{seen}");
        assert_eq!(talk::tcp(&pod, &from.pod, from.ips[0]).unwrap(), ip);
    }
    first.await_ready(JOINED).unwrap();

    call("DEL").ok().unwrap();
    eventually(JOINED, "its route is withdrawn", || {
        let kinds = ["available_routes", "approved_routes", "subnet_routes"];
        let all = kinds.map(|kind| routes(&cluster, kind)).concat();
        (!all.contains(&format!("{ADDRESS}/32"))).then_some(())
    })
    .unwrap_or_else(|error| panic!("{error:#}\n{}", first.told()));
    let ours = routes(&cluster, "subnet_routes");
    assert_eq!(ours.len(), 2, "the node's own stay: {ours:?}");
    eventually(JOINED, "nothing leads to it any more", || {
        let rules = first.sh("ip rule").unwrap();
        (!rules.contains(ADDRESS)).then_some(())
    })
    .unwrap();
    let seen = talk::tcp(&neighbour.pod, &remote.pod, remote.ips[0]).unwrap();
    assert_eq!(seen, neighbour.ips[0]);
}

/// As the daemon wrote it, but with an IPAM plugin that has ideas of its own.
fn conf(member: &Member<'_>) -> Value {
    let path = member.file("/etc/cni/net.d/10-headcni.conflist");
    let list: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let mut conf = list["plugins"][0].clone();
    conf["cniVersion"] = json!("1.1.0");
    conf["name"] = list["name"].clone();
    let range = json!({"subnet": "10.244.200.0/24", "rangeStart": ADDRESS, "rangeEnd": ADDRESS});
    conf["ipam"] =
        json!({"type": "host-local", "ranges": [[range]], "dataDir": "/var/lib/cni/other"});
    conf
}

/// Routes of the first node at the server.
fn routes(cluster: &Cluster<'_>, kind: &str) -> Vec<String> {
    let node = cluster.headscale.node_named("node-1").unwrap();
    let routes = node[kind].as_array().into_iter().flatten();
    routes
        .filter_map(|it| Some(it.as_str()?.to_owned()))
        .collect()
}
