//! A kubelet that knows no API server, and headcni as a Pod in its directory of manifests.

use lab::kubernetes::{Image, MANIFESTS, Worker};
use lab::{MeshCluster, Topology, JOIN_TIMEOUT, MeshNode, CLUSTER_CIDRS, Site, eventually, tools};
use serde_json::Value;

use crate::whole::{IMAGE, SOON, ask_from, ips, is_ready, name, pod, web};

const MANIFEST: &str = include_str!("../../../../deploy/static-pod/headcni-daemon.yaml");

#[test]
fn a_node_without_an_api_is_a_member_by_a_file() {
    let grounds = Topology::new(&[Site::Open, Site::Open]).unwrap();
    let mut cluster = MeshCluster::new(&grounds).unwrap();
    let url = cluster.headscale.url();
    cluster.members[1].launch().unwrap();
    let alone = &cluster.members[0];
    furnish(alone, &url);
    let worker = Worker::start_alone(alone.node).unwrap();
    worker.take(&Image::headcni(IMAGE).unwrap()).unwrap();

    put(alone, "headcni-daemon.yaml", &trusting(MANIFEST));
    let ready = alone.await_ready(SOON);
    ready.unwrap_or_else(|error| panic!("{error:#}\n{}", worker.logs()));
    let conf = alone.conf().unwrap();
    assert_eq!(conf["type"], "headcni", "{conf}");
    let daemon = await_pod(&worker, "headcni-daemon-node-1");
    assert_eq!(daemon["spec"]["hostNetwork"], true);

    put(alone, "web.yaml", &pod("web", "web", &web()).to_string());
    let web = await_pod(&worker, "web-node-1");
    let addresses = ips(&web);
    assert_eq!(addresses.len(), 2, "{addresses:?}");
    for (address, network) in addresses.iter().zip(["10.244.1.", "fd00:10:244:1:"]) {
        assert!(address.starts_with(network), "{address}");
    }

    cluster.members[1].await_ready(JOIN_TIMEOUT).unwrap();
    cluster.await_mesh().unwrap();
    let far = cluster.members[1].pod("far").unwrap();
    for ip in &addresses {
        let what = format!("a pod of another node reaches {ip}");
        let answer = eventually(JOIN_TIMEOUT, &what, || ask_from(&far.pod, ip, 8080).ok());
        let answer = answer.unwrap_or_else(|error| panic!("{error:#}\n{}", worker.logs()));
        assert!(far.ips.contains(&answer.seen), "{answer:?}");
        assert_eq!(answer.by, "web-node-1");
    }
}

/// What docs/install.md says to put there, and what every container runtime brings along.
fn furnish(member: &MeshNode, url: &str) {
    let networks = member.networks();
    let config = format!(
        "network: {{podCIDR: {{nodeLocal: {networks:?}, base: {CLUSTER_CIDRS:?}}}}}\n\
         headscale: {{url: \"{url}\", caFile: /etc/headcni/ca.pem, apiKeyFile: /etc/headcni/api-key}}\n"
    );
    member.configure(&config).unwrap();
    let loopback = tools::cni_plugin_dir().join("loopback");
    member
        .sh(&format!(
            "rm -rf /opt/cni; mkdir -p /opt/cni/bin; cp {} /opt/cni/bin/",
            loopback.display()
        ))
        .unwrap();
}

/// The manifest for a server whose authority is our own: a line of it counts.
fn trusting(manifest: &str) -> String {
    let trusting = manifest.replace("# - {name: SSL_CERT_FILE", "- {name: SSL_CERT_FILE");
    assert_ne!(trusting, manifest);
    trusting
}

fn put(member: &MeshNode, file: &str, text: &str) {
    let path = format!("{MANIFESTS}/{file}");
    member.node.write(&path, text).unwrap();
}

fn await_pod(worker: &Worker, wanted: &str) -> Value {
    let found = eventually(SOON, &format!("{wanted} is Ready"), || {
        let mut pods = worker.pods().ok()?.into_iter();
        pods.find(|pod| name(pod) == wanted && is_ready(pod))
    });
    found.unwrap_or_else(|error| panic!("{error:#}\n{:#?}\n{}", worker.pods(), worker.logs()))
}
