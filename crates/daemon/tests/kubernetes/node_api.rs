//! Networks come from Nodes, and daemons say there what they have.

use lab::kubernetes::ControlPlane;
use lab::scenario::{JOIN_TIMEOUT, MeshCluster, NODE_TAG, Topology};
use lab::{Join, Node, Tailscaled, eventually};


/// Of the cluster's networks, but no Node's.
const STOLEN: &str = "10.244.99.0/24";

#[test]
fn nodes_get_their_networks_from_the_api_and_believe_no_one_else() {
    let mut cluster = MeshCluster::prepare(2);
    let mut plane = ControlPlane::start(&grounds.server).unwrap();
    let user = account(&plane);
    let url = cluster.headscale.url();
    for node in &mut cluster.nodes {
        configure(node, &url, &user);
        node.start_daemon().unwrap();
    }
    let said = cluster.nodes[0].await_condition("PodCIDRKnown", false, JOIN_TIMEOUT);
    assert!(said.unwrap().contains("awaited from the Kubernetes API"));
    for name in ["node-1", "node-2"] {
        post_node(&plane, name);
    }
    for node in &cluster.nodes {
        node.await_ready(JOIN_TIMEOUT).unwrap();
    }
    let mut pods: Vec<_> = cluster
        .nodes
        .iter()
        .map(|it| it.pod("p").unwrap())
        .collect();
    await_all_to_all(&pods);
    for name in ["node-1", "node-2"] {
        says_what_it_has(&plane, name);
    }

    a_stranger_gets_no_pods_packets(&grounds, &cluster);
    people_are_told(&plane);

    // The API is away, and a daemon begins anew: it has what it had.
    plane.stop().unwrap();
    let node = &mut cluster.nodes[0];
    node
        .await_condition("KubernetesReachable", false, JOIN_TIMEOUT)
        .unwrap();
    assert_eq!(
        node.get("/ready").unwrap().status,
        200,
        "{}",
        node.diagnostics()
    );
    node.stop_daemon().unwrap();
    node.start_daemon().unwrap();
    node.await_ready(JOIN_TIMEOUT).unwrap();
    pods.push(node.pod("q").unwrap());
    await_all_to_all(&pods);
    plane.resume().unwrap();
    let node = &cluster.nodes[0];
    node
        .await_condition("KubernetesReachable", true, JOIN_TIMEOUT)
        .unwrap();
}

/// What has failed for a while is an Event: the lab's API key is good for a day.
fn people_are_told(plane: &ControlPlane) {
    let path = "/apis/events.k8s.io/v1/namespaces/default/events";
    eventually(JOIN_TIMEOUT, "an Event about the key", || {
        let events = plane.admin().get(path).unwrap();
        let mut events = events["items"].as_array()?.iter();
        events
            .any(|event| {
                event["reason"] == "CredentialsValidFailed"
                    && event["type"] == "Warning"
                    && event["regarding"]["name"] == "node-1"
            })
            .then_some(())
    })
    .unwrap();
}

/// Somebody with a key and our tag serves a network that no Node has.
fn a_stranger_gets_no_pods_packets(grounds: &Topology, cluster: &MeshCluster) {
    let stranger = Node::new("stranger").unwrap();
    grounds.underlay.plug(&stranger).unwrap();
    let tailscaled = Tailscaled::start(&stranger, cluster.headscale.ca_file()).unwrap();
    let join = Join {
        url: &cluster.headscale.url(),
        key: &cluster.headscale.preauth_key(NODE_TAG).unwrap(),
        advertise: &[STOLEN],
    };
    tailscaled.join(&join).unwrap();
    let node = &cluster.nodes[0];
    let said = node
        .await_condition("PodCIDRUnique", false, JOIN_TIMEOUT)
        .unwrap();
    assert!(
        said.contains(STOLEN) && said.contains("no Node object"),
        "{said}"
    );
    // tailscaled has a route to it in its own table, which packets to pods never get to.
    let routes = node.sh("ip route show table 26723").unwrap();
    assert!(
        routes.contains("10.244.") && !routes.contains(STOLEN),
        "{routes}"
    );
    let way = node.sh("ip route get 10.244.99.1 2>&1 || true").unwrap();
    assert!(way.contains("No route to host"), "{way}");
}
