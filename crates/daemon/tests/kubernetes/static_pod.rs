//! A standalone kubelet with headcni as a static Pod.

use lab::kubernetes::{Image, MANIFESTS, Worker};
use lab::scenario::{
    CLUSTER_CIDRS, DAEMON_IMAGE, JOIN_TIMEOUT, KUBE_TIMEOUT, MeshCluster, MeshNode, fetch_from,
    is_ready, object_name, pod_ips, pod_object, web_spec,
};
use lab::{eventually, tools};
use serde_json::Value;

const MANIFEST: &str = include_str!("../../../../deploy/static-pod/headcni-daemon.yaml");

#[test]
fn a_standalone_kubelet_joins_the_mesh_with_a_static_pod() {
    let mut cluster = MeshCluster::prepare(2);
    let url = cluster.headscale.url();
    cluster.nodes[1].start_daemon().unwrap();
    let standalone = &cluster.nodes[0];
    configure(standalone, &url);
    let worker = Worker::start_standalone(&standalone.node).unwrap();
    worker
        .import(&Image::headcni(DAEMON_IMAGE).unwrap())
        .unwrap();

    write_manifest(standalone, "headcni-daemon.yaml", &with_ca(MANIFEST));
    let ready = standalone.await_ready(KUBE_TIMEOUT);
    ready.unwrap_or_else(|error| panic!("{error:#}\n{}", worker.logs()));
    let conf = standalone.cni_conf().unwrap();
    assert_eq!(conf["type"], "headcni", "{conf}");
    let daemon = await_pod(&worker, "headcni-daemon-node-1");
    assert_eq!(daemon["spec"]["hostNetwork"], true);

    write_manifest(
        standalone,
        "web.yaml",
        &pod_object("web", "web", &web_spec()).to_string(),
    );
    let web = await_pod(&worker, "web-node-1");
    let addresses = pod_ips(&web);
    assert_eq!(addresses.len(), 2, "{addresses:?}");
    for (address, network) in addresses.iter().zip(["10.244.1.", "fd00:10:244:1:"]) {
        assert!(address.starts_with(network), "{address}");
    }

    cluster.nodes[1].await_ready(JOIN_TIMEOUT).unwrap();
    cluster.await_routes().unwrap();
    let far = cluster.nodes[1].pod("far").unwrap();
    for ip in &addresses {
        let what = format!("a pod of another node reaches {ip}");
        let reply = eventually(JOIN_TIMEOUT, &what, || fetch_from(&far.pod, ip, 8080).ok());
        let reply = reply.unwrap_or_else(|error| panic!("{error:#}\n{}", worker.logs()));
        assert!(far.ips.contains(&reply.source), "{reply:?}");
        assert_eq!(reply.pod, "web-node-1");
    }
}

/// The configuration of docs/install.md, and the loopback plugin that every container runtime ships.
fn configure(node: &MeshNode, url: &str) {
    let networks = node.pod_cidrs();
    let config = format!(
        "network: {{podCIDR: {{nodeLocal: {networks:?}, base: {CLUSTER_CIDRS:?}}}}}\n\
         headscale: {{url: \"{url}\", caFile: /etc/headcni/ca.pem, apiKeyFile: /etc/headcni/api-key}}\n"
    );
    node.configure(&config).unwrap();
    let loopback = tools::cni_plugin_dir().join("loopback");
    node.sh(&format!(
        "rm -rf /opt/cni; mkdir -p /opt/cni/bin; cp {} /opt/cni/bin/",
        loopback.display()
    ))
    .unwrap();
}

/// Uncomments the line for a private CA.
fn with_ca(manifest: &str) -> String {
    let with_ca = manifest.replace("# - {name: SSL_CERT_FILE", "- {name: SSL_CERT_FILE");
    assert_ne!(with_ca, manifest);
    with_ca
}

fn write_manifest(node: &MeshNode, file: &str, text: &str) {
    let path = format!("{MANIFESTS}/{file}");
    node.node.write(&path, text).unwrap();
}

fn await_pod(worker: &Worker, wanted: &str) -> Value {
    let found = eventually(KUBE_TIMEOUT, &format!("{wanted} is Ready"), || {
        let mut pods = worker.pods().ok()?.into_iter();
        pods.find(|pod| object_name(pod) == wanted && is_ready(pod))
    });
    found.unwrap_or_else(|error| panic!("{error:#}\n{:#?}\n{}", worker.pods(), worker.logs()))
}
