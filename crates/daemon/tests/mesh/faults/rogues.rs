//! Members of the mesh that are no nodes of the cluster, and say that pods are theirs.

use lab::{MeshCluster, JOIN_TIMEOUT, Join, MeshNode, Netns, Node, TAG, Tailscaled, eventually};
use serde_json::json;

use super::{HARDLY, PUT_BACK, REPAIRED, Talk, with_two_nodes};
use crate::told;

/// A pod network that no node has.
const FREE: &str = "10.244.9.0/24";
/// The first node's, and the half of it that its pods begin in.
const FIRSTS: &str = "10.244.1.0/24";
const HALF: &str = "10.244.1.0/25";
/// The second node's, and one around it that has nothing of the first's.
const SECONDS: &str = "10.244.2.0/24";
const AROUND: &str = "10.244.2.0/23";

#[test]
fn what_strangers_claim_gets_no_route_and_is_told_of() {
    with_two_nodes(|cluster, talk| {
        let cluster = &*cluster;
        let [visitor, thief] = ["visitor", "thief"].map(|name| Node::new(name).unwrap());
        let mut strangers = Vec::new();
        talk.silence(
            "a pod network served by a member without our tag",
            HARDLY,
            || {
                let key = cluster.headscale.users_key("visitor").unwrap();
                strangers.push(join(cluster, &visitor, &key, FREE));
                // Nobody does so for it but a person who errs.
                cluster.headscale.approve("visitor", &[FREE]).unwrap();
                await_heard(cluster, "visitor", FREE);
                for member in &cluster.members {
                    let claim = format!("visitor claims {FREE}, and has not the tag");
                    let words = [claim.as_str(), "headscale nodes approve-routes"];
                    told::await_failing(member, "NetworksUnique", &words);
                }
            },
        );
        check_routes(cluster);

        talk.silence(
            "a node's network claimed by a member with our tag",
            HARDLY,
            || {
                let key = cluster.headscale.preauth_key(TAG).unwrap();
                strangers.push(join(cluster, &thief, &key, FIRSTS));
                let claim = format!("thief has {FIRSTS}, too");
                let words = [claim.as_str(), "headscale nodes delete"];
                told::await_failing(&cluster.members[0], "NetworksUnique", &words);
            },
        );
        check_routes(cluster);
        goes_on_serving(cluster);

        // tailscaled goes by the smallest network that it was told of, and no route leads it back.
        talk.silence(
            "half of a node's network claimed by a member with our tag",
            // It lasts as long as all that is looked at meanwhile.
            REPAIRED,
            || {
                let advertise = format!("--advertise-routes={HALF}");
                strangers[1].cli(["set", &advertise]).unwrap();
                await_heard(cluster, "thief", HALF);
                let claim = format!("thief claims {HALF}, which is part of node-1's {FIRSTS}");
                told::await_failing(&cluster.members[1], "NetworksUnique", &[&claim]);
                gets_nothing(&cluster.members[1], &thief, talk);
                check_routes(cluster);
                goes_on_serving(cluster);
                cluster.headscale.delete("thief").unwrap();
            },
        );
        cluster.headscale.approve("visitor", &[]).unwrap();
        for member in &cluster.members {
            told::await_holding(member, "NetworksUnique");
        }
    });
}

#[test]
fn a_network_around_a_nodes_cuts_nobody_off() {
    with_two_nodes(|cluster, talk| {
        let thief = Node::new("thief").unwrap();
        let claim = format!("thief claims {AROUND}, which overlaps node-2's {SECONDS}");
        let mut strangers = Vec::new();
        talk.silence(
            "a network around a node's, of a member with our tag",
            HARDLY,
            || {
                let key = cluster.headscale.preauth_key(TAG).unwrap();
                strangers.push(join(cluster, &thief, &key, AROUND));
                await_heard(cluster, "thief", AROUND);
                told::await_failing(&cluster.members[0], "NetworksUnique", &[&claim]);
                let conflict = format!("thief has {AROUND}, which overlaps this node's {SECONDS}");
                told::await_failing(&cluster.members[1], "NetworksUnique", &[&conflict]);
            },
        );
        check_routes(cluster);

        // Whoever has never seen either goes by what nodes' networks are like.
        talk.silence(
            "a daemon that knows nobody, beside that member",
            PUT_BACK,
            || {
                let member = &mut cluster.members[0];
                member.stop_daemon().unwrap();
                member.sh("rm /var/lib/headcni/mesh.json").unwrap();
                let before = member.log().len();
                member.launch().unwrap();
                eventually(JOIN_TIMEOUT, "the new daemon names the thief", || {
                    member.log().get(before..)?.contains(&claim).then_some(())
                })
                .unwrap_or_else(|error| panic!("{error:#}\n{}", member.told()));
            },
        );
        check_routes(cluster);

        cluster.headscale.delete("thief").unwrap();
        for member in &cluster.members {
            told::await_holding(member, "NetworksUnique");
        }
    });
}

#[test]
fn where_kubernetes_is_believed_a_nodes_network_leads_to_that_node_only() {
    with_two_nodes(|cluster, talk| {
        believe_kubernetes(cluster);
        let thief = Node::new("thief").unwrap();
        talk.silence(
            "a node's network served by another with our tag",
            REPAIRED,
            || {
                let key = cluster.headscale.preauth_key(TAG).unwrap();
                let _stranger = join(cluster, &thief, &key, SECONDS);
                let has = |key: &str| {
                    let thief = cluster.headscale.node_named("thief").unwrap();
                    thief[key].to_string().contains(SECONDS).then_some(())
                };
                eventually(JOIN_TIMEOUT, "it is approved", || has("approved_routes")).unwrap();
                // The server sends packets to another while the node is away, and goes on when it is back.
                eventually(JOIN_TIMEOUT, "the thief serves it", || {
                    cluster.headscale.approve("node-2", &[]).unwrap();
                    has("subnet_routes")
                })
                .unwrap();
                let member = &cluster.members[0];
                let claim =
                    format!("thief claims {SECONDS}, which overlaps {SECONDS} of Node node-2");
                told::await_failing(member, "NetworksUnique", &[&claim]);
                eventually(JOIN_TIMEOUT, "no route leads to the thief", || {
                    let routes = member.sh("ip -4 route show table 26723").ok()?;
                    (!routes.contains(SECONDS)).then_some(())
                })
                .unwrap_or_else(|error| panic!("{error:#}\n{}", member.told()));
                cluster.headscale.delete("thief").unwrap();
            },
        );
        check_routes(cluster);
    });
}

/// Makes the first node go by what the Kubernetes API said before it went away.
fn believe_kubernetes(cluster: &mut MeshCluster) {
    let url = cluster.headscale.url();
    let second = cluster.headscale.node_named("node-2").unwrap();
    let second = json!({
        "assigned": cluster.members[1].networks(),
        "addresses": second["ip_addresses"],
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
    let member = &mut cluster.members[0];
    member.stop_daemon().unwrap();
    let path = "/etc/headcni/kubeconfig";
    member.node.write(path, kubeconfig.to_string()).unwrap();
    let path = "/var/lib/headcni/kubernetes.json";
    member.node.write(path, known.to_string()).unwrap();
    let config = member.config(&url);
    let more = "kubernetes:\n  kubeconfig: /etc/headcni/kubeconfig\n";
    member.configure(&format!("{config}{more}")).unwrap();
    member.launch().unwrap();
    let away = member.await_condition("KubernetesReachable", false, JOIN_TIMEOUT);
    away.unwrap();
    told::await_holding(member, "NetworksUnique");
}

/// What a thief would get is refused on the node that it leaves from.
fn gets_nothing(from: &MeshNode, thief: &Node, talk: &Talk<'_>) {
    let is_refused = || {
        let routes = from.sh("ip -4 route show table 26723").ok()?;
        let refused = format!("unreachable {HALF} ");
        let mut lines = routes.lines();
        lines.any(|line| line.starts_with(&refused)).then_some(())
    };
    eventually(JOIN_TIMEOUT, &format!("{HALF} leads nowhere"), is_refused)
        .unwrap_or_else(|error| panic!("{error:#}\n{}", from.told()));
    let rule = format!("iifname tailscale0 ip daddr {FIRSTS} counter");
    let table = format!(
        "table inet loot {{ chain arriving {{ type filter hook prerouting priority raw; {rule}; }}; }}"
    );
    thief.run(["nft", &table]).unwrap();
    let is_empty = || {
        let listed = thief.run(["nft", "list", "table", "inet", "loot"]);
        listed.unwrap().stdout.contains("counter packets 0 ")
    };
    let target = talk.caller.ips[0];
    assert!(talk.other.pod.ping(&target.to_string()).is_err());
    assert!(is_empty(), "somebody else got packets for {target}");
    // It is this route that keeps them: the talk goes on all the while.
    from.sh(&format!("ip route delete unreachable {HALF} table 26723"))
        .unwrap();
    eventually(JOIN_TIMEOUT, "packets got elsewhere", || {
        (!is_empty()).then_some(())
    })
    .unwrap();
    eventually(JOIN_TIMEOUT, "the route is back", is_refused).unwrap();
}

/// Joins as a person would.
fn join<'n>(cluster: &MeshCluster, node: &'n Node, key: &str, network: &str) -> Tailscaled {
    let headscale = &cluster.headscale;
    cluster.grounds.underlay.plug(node).unwrap();
    let tailscaled = Tailscaled::start(node, headscale.ca_file()).unwrap();
    let join = Join {
        url: &headscale.url(),
        key,
        advertise: &[network],
    };
    tailscaled.join(&join).unwrap();
    tailscaled
}

/// Waits until every node's tailscaled has been told that a network leads to a stranger.
fn await_heard(cluster: &MeshCluster, who: &str, network: &str) {
    for member in &cluster.members {
        eventually(JOIN_TIMEOUT, &format!("{network} leads to {who}"), || {
            let status = member.tailscaled_status().ok()?;
            let mut peers = status["Peer"].as_object()?.values();
            let stranger = peers.find(|peer| peer["HostName"] == who)?;
            let served = stranger["PrimaryRoutes"].as_array()?;
            served.iter().any(|served| served == network).then_some(())
        })
        .unwrap_or_else(|error| panic!("{error:#}\n{:?}", member.tailscaled_status()));
    }
}

/// Only what is a node's has a route, and it leads to that node.
fn check_routes(cluster: &MeshCluster) {
    for (member, others) in cluster.members.iter().zip([SECONDS, FIRSTS]) {
        let routes = member.sh("ip -4 route show table 26723").unwrap();
        let led = routes.lines().filter(|line| line.contains("headcni01"));
        let led: Vec<&str> = led.filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(led, [others], "{routes}");
        let way = member
            .node
            .attempt(["ip", "route", "get", "10.244.9.1"])
            .unwrap();
        assert!(!way.status.success(), "{way:?}");
    }
}

fn goes_on_serving(cluster: &MeshCluster) {
    cluster.members[0].await_ready(JOIN_TIMEOUT).unwrap();
    let served = |name: &str| {
        let node = cluster.headscale.node_named(name).unwrap();
        node["subnet_routes"].to_string().contains(FIRSTS)
    };
    assert!(served("node-1") && !served("thief"));
}
