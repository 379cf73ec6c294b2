//! Peers outside the cluster that advertise pod CIDRs.

use lab::scenario::{JOIN_TIMEOUT, MeshCluster, MeshNode, NODE_TAG};
use lab::{Join, Netns, Node, Tailscaled, eventually};
use serde_json::json;

use super::{JITTER, KERNEL_RESTORE, REPAIR_TIMEOUT, Traffic, with_two_nodes};

/// A pod CIDR of no node.
const UNUSED: &str = "10.244.9.0/24";
/// The first node's, and the half that has its pods.
const FIRST: &str = "10.244.1.0/24";
const HALF: &str = "10.244.1.0/25";
/// The second node's, and a supernet without the first node's.
const SECOND: &str = "10.244.2.0/24";
const SUPERNET: &str = "10.244.2.0/23";

#[test]
fn routes_of_peers_outside_the_cluster_are_rejected_and_reported() {
    with_two_nodes(|cluster, traffic| {
        let cluster = &*cluster;
        let [visitor, thief] = ["visitor", "thief"].map(|name| Node::new(name).unwrap());
        let mut rogues = Vec::new();
        traffic.assert_outage(
            "an unused pod CIDR served by a peer without our tag",
            JITTER,
            || {
                let key = cluster.headscale.user_preauth_key("visitor").unwrap();
                rogues.push(join(cluster, &visitor, &key, UNUSED));
                // An administrator's mistake.
                cluster
                    .headscale
                    .approve_routes("visitor", &[UNUSED])
                    .unwrap();
                await_served_by(cluster, "visitor", UNUSED);
                for node in &cluster.nodes {
                    let claim = format!("visitor advertises {UNUSED}, but lacks the node tag");
                    let texts = [claim.as_str(), "headscale nodes approve-routes"];
                    node.await_reported_false("PodCIDRUnique", &texts);
                }
            },
        );
        assert_routes(cluster);

        traffic.assert_outage(
            "a node's pod CIDR advertised by a peer with our tag",
            JITTER,
            || {
                let key = cluster.headscale.preauth_key(NODE_TAG).unwrap();
                rogues.push(join(cluster, &thief, &key, FIRST));
                let claim = format!("thief also advertises {FIRST}");
                let texts = [claim.as_str(), "headscale nodes delete"];
                cluster.nodes[0].await_reported_false("PodCIDRUnique", &texts);
            },
        );
        assert_routes(cluster);
        assert_still_serving(cluster);

        // tailscaled uses the most specific prefix.
        traffic.assert_outage(
            "half of a node's pod CIDR advertised by a peer with our tag",
            // The outage lasts as long as the checks below.
            REPAIR_TIMEOUT,
            || {
                let advertise = format!("--advertise-routes={HALF}");
                rogues[1].cli(["set", &advertise]).unwrap();
                await_served_by(cluster, "thief", HALF);
                let claim = format!("thief advertises {HALF}, which is part of node-1's {FIRST}");
                cluster.nodes[1].await_reported_false("PodCIDRUnique", &[&claim]);
                assert_thief_gets_nothing(&cluster.nodes[1], &thief, traffic);
                assert_routes(cluster);
                assert_still_serving(cluster);
                cluster.headscale.delete_node("thief").unwrap();
            },
        );
        cluster.headscale.approve_routes("visitor", &[]).unwrap();
        for node in &cluster.nodes {
            node.await_reported_true("PodCIDRUnique");
        }
    });
}

#[test]
fn a_supernet_of_a_pod_cidr_is_rejected_without_an_outage() {
    with_two_nodes(|cluster, traffic| {
        let thief = Node::new("thief").unwrap();
        let claim = format!("thief advertises {SUPERNET}, which overlaps node-2's {SECOND}");
        let mut rogues = Vec::new();
        traffic.assert_outage(
            "a supernet advertised by a peer with our tag",
            JITTER,
            || {
                let key = cluster.headscale.preauth_key(NODE_TAG).unwrap();
                rogues.push(join(cluster, &thief, &key, SUPERNET));
                await_served_by(cluster, "thief", SUPERNET);
                cluster.nodes[0].await_reported_false("PodCIDRUnique", &[&claim]);
                let conflict =
                    format!("thief advertises {SUPERNET}, which overlaps this node's {SECOND}");
                cluster.nodes[1].await_reported_false("PodCIDRUnique", &[&conflict]);
            },
        );
        assert_routes(cluster);

        // A daemon without state decides by the usual prefix length.
        traffic.assert_outage(
            "a daemon without state, beside that peer",
            KERNEL_RESTORE,
            || {
                let node = &mut cluster.nodes[0];
                node.stop_daemon().unwrap();
                node.sh("rm /var/lib/headcni/mesh.json").unwrap();
                let before = node.log().len();
                node.start_daemon().unwrap();
                eventually(JOIN_TIMEOUT, "the new daemon reports the thief", || {
                    node.log().get(before..)?.contains(&claim).then_some(())
                })
                .unwrap_or_else(|error| panic!("{error:#}\n{}", node.diagnostics()));
            },
        );
        assert_routes(cluster);

        cluster.headscale.delete_node("thief").unwrap();
        for node in &cluster.nodes {
            node.await_reported_true("PodCIDRUnique");
        }
    });
}

#[test]
fn with_kubernetes_a_pod_cidr_is_routed_to_its_own_node_only() {
    with_two_nodes(|cluster, traffic| {
        use_cached_nodes(cluster);
        let thief = Node::new("thief").unwrap();
        traffic.assert_outage(
            "a node's pod CIDR served by another peer with our tag",
            REPAIR_TIMEOUT,
            || {
                let key = cluster.headscale.preauth_key(NODE_TAG).unwrap();
                let _rogue = join(cluster, &thief, &key, SECOND);
                let has = |key: &str| {
                    let thief = cluster.headscale.node_named("thief").unwrap();
                    thief[key].to_string().contains(SECOND).then_some(())
                };
                eventually(JOIN_TIMEOUT, "it is approved", || has("approved_routes")).unwrap();
                // Headscale fails over to another peer while a route is not approved.
                eventually(JOIN_TIMEOUT, "the thief serves it", || {
                    cluster.headscale.approve_routes("node-2", &[]).unwrap();
                    has("subnet_routes")
                })
                .unwrap();
                let node = &cluster.nodes[0];
                let claim =
                    format!("thief advertises {SECOND}, which overlaps {SECOND} of Node node-2");
                node.await_reported_false("PodCIDRUnique", &[&claim]);
                eventually(JOIN_TIMEOUT, "no route leads to the thief", || {
                    let routes = node.sh("ip -4 route show table 26723").ok()?;
                    (!routes.contains(SECOND)).then_some(())
                })
                .unwrap_or_else(|error| panic!("{error:#}\n{}", node.diagnostics()));
                cluster.headscale.delete_node("thief").unwrap();
            },
        );
        assert_routes(cluster);
    });
}

/// Gives the first node a cache of Nodes from an API server that is gone.
fn use_cached_nodes(cluster: &mut MeshCluster) {
    let url = cluster.headscale.url();
    let second = cluster.headscale.node_named("node-2").unwrap();
    let second = json!({
        "assigned": cluster.nodes[1].pod_cidrs(),
        "tailnetIps": second["ip_addresses"],
    });
    let known = json!({ "nodes": { "node-2": second } });
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "gone", "cluster": { "server": "https://127.0.0.1:1" } }],
        "users": [{ "name": "gone", "user": { "token": "none" } }],
        "contexts": [{ "name": "gone", "context": { "cluster": "gone", "user": "gone" } }],
        "current-context": "gone",
    });
    let node = &mut cluster.nodes[0];
    node.stop_daemon().unwrap();
    let path = "/etc/headcni/kubeconfig";
    node.node.write(path, kubeconfig.to_string()).unwrap();
    let path = "/var/lib/headcni/kubernetes.json";
    node.node.write(path, known.to_string()).unwrap();
    let config = node.config(&url);
    let more = "kubernetes:\n  kubeconfig: /etc/headcni/kubeconfig\n";
    node.configure(&format!("{config}{more}")).unwrap();
    node.start_daemon().unwrap();
    let away = node.await_condition("KubernetesReachable", false, JOIN_TIMEOUT);
    away.unwrap();
    node.await_reported_true("PodCIDRUnique");
}

/// The sending node refuses the packets that the thief would get.
fn assert_thief_gets_nothing(from: &MeshNode, thief: &Node, traffic: &Traffic) {
    let is_refused = || {
        let routes = from.sh("ip -4 route show table 26723").ok()?;
        let refused = format!("unreachable {HALF} ");
        let mut lines = routes.lines();
        lines.any(|line| line.starts_with(&refused)).then_some(())
    };
    eventually(JOIN_TIMEOUT, &format!("{HALF} is unreachable"), is_refused)
        .unwrap_or_else(|error| panic!("{error:#}\n{}", from.diagnostics()));
    let rule = format!("iifname tailscale0 ip daddr {FIRST} counter");
    let table = format!(
        "table inet loot {{ chain arriving {{ type filter hook prerouting priority raw; {rule}; }}; }}"
    );
    thief.run(["nft", &table]).unwrap();
    let is_empty = || {
        let listed = thief.run(["nft", "list", "table", "inet", "loot"]);
        listed.unwrap().stdout.contains("counter packets 0 ")
    };
    let target = traffic.client.ips[0];
    assert!(traffic.server.pod.ping(&target.to_string()).is_err());
    assert!(is_empty(), "the thief got packets for {target}");
    // Without that route the thief gets them: traffic goes on all the time.
    from.sh(&format!("ip route delete unreachable {HALF} table 26723"))
        .unwrap();
    eventually(JOIN_TIMEOUT, "the thief gets packets", || {
        (!is_empty()).then_some(())
    })
    .unwrap();
    eventually(JOIN_TIMEOUT, "the route is back", is_refused).unwrap();
}

/// Joins with `tailscale up`.
fn join(cluster: &MeshCluster, node: &Node, key: &str, route: &str) -> Tailscaled {
    let headscale = &cluster.headscale;
    cluster.topology.underlay.plug(node).unwrap();
    let tailscaled = Tailscaled::start(node, headscale.ca_file()).unwrap();
    let join = Join {
        url: &headscale.url(),
        key,
        advertise: &[route],
    };
    tailscaled.join(&join).unwrap();
    tailscaled
}

/// Waits until every node's tailscaled has the route of a rogue peer.
fn await_served_by(cluster: &MeshCluster, name: &str, route: &str) {
    for node in &cluster.nodes {
        eventually(JOIN_TIMEOUT, &format!("{name} serves {route}"), || {
            let status = node.tailscaled_status().ok()?;
            let mut peers = status["Peer"].as_object()?.values();
            let rogue = peers.find(|peer| peer["HostName"] == name)?;
            let served = rogue["PrimaryRoutes"].as_array()?;
            served.iter().any(|served| served == route).then_some(())
        })
        .unwrap_or_else(|error| panic!("{error:#}\n{:?}", node.tailscaled_status()));
    }
}

/// Only pod CIDRs of nodes have a route.
fn assert_routes(cluster: &MeshCluster) {
    for (node, others) in cluster.nodes.iter().zip([SECOND, FIRST]) {
        let routes = node.sh("ip -4 route show table 26723").unwrap();
        let installed = routes.lines().filter(|line| line.contains("headcni01"));
        let installed: Vec<&str> = installed
            .filter_map(|line| line.split(' ').next())
            .collect();
        assert_eq!(installed, [others], "{routes}");
        let lookup = node
            .node
            .attempt(["ip", "route", "get", "10.244.9.1"])
            .unwrap();
        assert!(!lookup.status.success(), "{lookup:?}");
    }
}

fn assert_still_serving(cluster: &MeshCluster) {
    cluster.nodes[0].await_ready(JOIN_TIMEOUT).unwrap();
    let served = |name: &str| {
        let listed = cluster.headscale.node_named(name).unwrap();
        listed["subnet_routes"].to_string().contains(FIRST)
    };
    assert!(served("node-1") && !served("thief"));
}
