//! Pod CIDRs come from Nodes, and daemons annotate their Nodes.

use lab::scenario::connectivity::await_all_to_all;
use lab::scenario::{JOIN_TIMEOUT, KubeApi, MeshCluster, NODE_TAG};
use lab::{Join, Node, Tailscaled, eventually};

use crate::documented_rules;

/// In the cluster CIDR, but no Node's.
const UNUSED: &str = "10.244.99.0/24";

#[test]
fn daemons_use_the_pod_cidrs_of_nodes_and_reject_routes_without_a_node() {
    let mut cluster = MeshCluster::prepare(2);
    let mut api = KubeApi::start(&cluster, &documented_rules());
    let url = cluster.headscale.url();
    for node in &mut cluster.nodes {
        api.configure(node, &url);
        node.start_daemon().unwrap();
    }
    let message = cluster.nodes[0].await_condition("PodCIDRKnown", false, JOIN_TIMEOUT);
    assert!(message.unwrap().contains("awaited from the Kubernetes API"));
    for name in ["node-1", "node-2"] {
        api.create_node(name);
    }
    for node in &cluster.nodes {
        node.await_ready(JOIN_TIMEOUT).unwrap();
    }
    let mut pods = cluster.pod_on_each("p");
    await_all_to_all(&pods);
    for name in ["node-1", "node-2"] {
        api.await_node_patched(name);
    }

    a_route_without_a_node_is_rejected(&cluster);
    a_false_condition_is_an_event(&api);

    // A daemon that starts without the API uses its cache.
    api.plane.stop().unwrap();
    let node = &mut cluster.nodes[0];
    node.await_condition("KubernetesReachable", false, JOIN_TIMEOUT)
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
    api.plane.resume().unwrap();
    cluster.nodes[0]
        .await_condition("KubernetesReachable", true, JOIN_TIMEOUT)
        .unwrap();
}

/// The lab's API key is valid for a day, which is reported as an Event after a while.
fn a_false_condition_is_an_event(api: &KubeApi) {
    let path = "/apis/events.k8s.io/v1/namespaces/default/events";
    eventually(JOIN_TIMEOUT, "an Event about the key", || {
        let events = api.plane.admin().get(path).unwrap();
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

/// A peer with our tag serves a pod CIDR that no Node has.
fn a_route_without_a_node_is_rejected(cluster: &MeshCluster) {
    let rogue = Node::new("rogue").unwrap();
    cluster.topology.underlay.plug(&rogue).unwrap();
    let tailscaled = Tailscaled::start(&rogue, cluster.headscale.ca_file()).unwrap();
    let join = Join {
        url: &cluster.headscale.url(),
        key: &cluster.headscale.preauth_key(NODE_TAG).unwrap(),
        advertise: &[UNUSED],
    };
    tailscaled.join(&join).unwrap();
    let node = &cluster.nodes[0];
    let message = node.await_condition("PodCIDRUnique", false, JOIN_TIMEOUT);
    let message = message.unwrap();
    assert!(
        message.contains(UNUSED) && message.contains("no Node object"),
        "{message}"
    );
    // tailscaled's table has the route, but packets to pods never get there.
    let routes = node.sh("ip route show table 26723").unwrap();
    assert!(
        routes.contains("10.244.") && !routes.contains(UNUSED),
        "{routes}"
    );
    let lookup = node.sh("ip route get 10.244.99.1 2>&1 || true").unwrap();
    assert!(lookup.contains("No route to host"), "{lookup}");
}
