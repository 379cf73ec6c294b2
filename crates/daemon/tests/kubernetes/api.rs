//! Networks come from Nodes, and daemons say there what they have.

use lab::kubernetes::ControlPlane;
use lab::{MeshCluster, Topology, JOIN_TIMEOUT, Join, Node, Site, TAG, Tailscaled, eventually};

use crate::stage::{account, await_all_to_all, configure, post_node, says_what_it_has};

/// Of the cluster's networks, but no Node's.
const STOLEN: &str = "10.244.99.0/24";

#[test]
fn nodes_get_their_networks_from_the_api_and_believe_no_one_else() {
    let grounds = Topology::new(&[Site::Open, Site::Open]).unwrap();
    let mut cluster = MeshCluster::new(&grounds).unwrap();
    let mut plane = ControlPlane::start(&grounds.server).unwrap();
    let user = account(&plane);
    let url = cluster.headscale.url();
    for member in &mut cluster.members {
        configure(member, &url, &user);
        member.launch().unwrap();
    }
    let said = cluster.members[0].await_condition("PodCIDRKnown", false, JOIN_TIMEOUT);
    assert!(said.unwrap().contains("awaited from the Kubernetes API"));
    for name in ["node-1", "node-2"] {
        post_node(&plane, name);
    }
    for member in &cluster.members {
        member.await_ready(JOIN_TIMEOUT).unwrap();
    }
    let mut pods: Vec<_> = cluster
        .members
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
    let member = &mut cluster.members[0];
    member
        .await_condition("KubernetesReachable", false, JOIN_TIMEOUT)
        .unwrap();
    assert_eq!(
        member.get("/ready").unwrap().status,
        200,
        "{}",
        member.told()
    );
    member.stop_daemon().unwrap();
    member.launch().unwrap();
    member.await_ready(JOIN_TIMEOUT).unwrap();
    pods.push(member.pod("q").unwrap());
    await_all_to_all(&pods);
    plane.resume().unwrap();
    let member = &cluster.members[0];
    member
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
                event["reason"] == "CredentialsLastFailed"
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
        key: &cluster.headscale.preauth_key(TAG).unwrap(),
        advertise: &[STOLEN],
    };
    tailscaled.join(&join).unwrap();
    let member = &cluster.members[0];
    let said = member
        .await_condition("NetworksUnique", false, JOIN_TIMEOUT)
        .unwrap();
    assert!(
        said.contains(STOLEN) && said.contains("no Node object"),
        "{said}"
    );
    // tailscaled has a route to it in its own table, which packets to pods never get to.
    let routes = member.sh("ip route show table 26723").unwrap();
    assert!(
        routes.contains("10.244.") && !routes.contains(STOLEN),
        "{routes}"
    );
    let way = member.sh("ip route get 10.244.99.1 2>&1 || true").unwrap();
    assert!(way.contains("No route to host"), "{way}");
}
