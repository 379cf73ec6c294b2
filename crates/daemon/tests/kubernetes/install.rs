//! `helm install` on a new cluster.

use std::thread;
use std::time::Duration;

use lab::kubernetes::ProxyMode;
use lab::scenario::{
    KUBE_TIMEOUT, KubeCluster, fetch_from, object_name, pod_ips, pod_object, service_object,
    web_spec, web_spec_on,
};
use lab::{Netns, eventually_slowly};
use serde_json::{Value, json};

/// Longer than a connection attempt to Headscale.
const NOT_READY: Duration = Duration::from_secs(15);

#[test]
fn one_helm_install_gives_pods_and_services_their_network() {
    let mut cluster = KubeCluster::prepare(2);

    nodes_are_ready_once_headscale_is_up(&mut cluster);
    cluster
        .helm
        .run(&["test", "headcni"])
        .unwrap_or_else(|error| panic!("{error:#}\n{}", cluster.diagnostics()));

    let pods = deploy(&cluster);
    cluster.await_all_to_all(&pods);
    nodes_reach_pods(&cluster, &pods);
    expose(&cluster);
    for mode in [ProxyMode::Nftables, ProxyMode::Iptables] {
        for worker in &mut cluster.workers {
            worker.use_proxy_mode(mode).unwrap();
        }
        cluster_ips_reach_pods(&cluster, &pods);
        node_ports_reach_pods(&cluster, &pods);
        a_pod_reaches_itself_by_its_service(&cluster);
        a_host_port_reaches_its_pod(&cluster, &pods);
    }
}

/// Headscale is down at first: daemons run, but no Node is Ready.
fn nodes_are_ready_once_headscale_is_up(cluster: &mut KubeCluster) {
    cluster.headscale.kill().unwrap();
    cluster.install();
    let nodes = &cluster.topology.nodes;
    for node in nodes {
        let what = format!("the daemon of {} waits for the mesh", node.name());
        eventually_slowly(KUBE_TIMEOUT, &what, || {
            let object = cluster.get(&format!("/api/v1/nodes/{}", node.name()));
            let conditions = object["status"]["conditions"].as_array()?.iter();
            let mut conditions = conditions.filter(|one| one["type"] == "NetworkUnavailable");
            (conditions.next()?["status"] == "True").then_some(())
        })
        .unwrap_or_else(|error| panic!("{error:#}\n{}", cluster.diagnostics()));
    }
    thread::sleep(NOT_READY);
    for node in nodes {
        assert!(
            !cluster.is_node_ready(node.name()),
            "{}",
            cluster.diagnostics()
        );
    }
    cluster.headscale.restart().unwrap();
    cluster.await_nodes();
}

fn deploy(cluster: &KubeCluster) -> Vec<Value> {
    let mut spec = web_spec();
    spec["topologySpreadConstraints"] = json!([{
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": { "matchLabels": { "app": "web" } },
    }]);
    cluster.apply(&json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": "web", "namespace": "default" },
        "spec": {
            "replicas": 4,
            "selector": { "matchLabels": { "app": "web" } },
            "template": { "metadata": { "labels": { "app": "web" } }, "spec": spec },
        },
    }));
    let pods = cluster.await_pods("web", 4);
    for node in &cluster.topology.nodes {
        let here = pods
            .iter()
            .filter(|pod| pod["spec"]["nodeName"] == node.name());
        assert_eq!(here.count(), 2);
    }
    pods
}

/// As kubelet probes, webhooks and hostNetwork Pods do.
fn nodes_reach_pods(cluster: &KubeCluster, pods: &[Value]) {
    for node in &cluster.topology.nodes {
        for to in pods {
            for ip in pod_ips(to) {
                let what = format!("{} reaches {} at {ip}", node.name(), object_name(to));
                let fetch = || fetch_from(node, &ip, 8080);
                cluster.await_reply(&what, fetch, |reply| reply.pod == object_name(to));
            }
        }
    }
}

/// Services of all types, and a single Pod with a hostPort.
fn expose(cluster: &KubeCluster) {
    let ports = |number: u16| json!([{ "port": 80, "targetPort": 8080, "nodePort": number }]);
    cluster.apply(&service_object("web", "web", &json!({})));
    for (policy, port) in [("Cluster", 30080), ("Local", 30081)] {
        let more = json!({
            "type": "NodePort", "externalTrafficPolicy": policy, "ports": ports(port),
        });
        cluster.apply(&service_object(
            &format!("web-{}", policy.to_lowercase()),
            "web",
            &more,
        ));
    }
    let more = json!({
        "type": "NodePort", "externalTrafficPolicy": "Local", "ports": ports(30082),
    });
    cluster.apply(&service_object("single", "single", &more));
    let mut spec = web_spec_on("node-1");
    spec["containers"][0]["ports"] = json!([{ "containerPort": 8080, "hostPort": 8088 }]);
    let mut single = pod_object("single", "single", &spec);
    single["metadata"]["annotations"] = json!({ "kubernetes.io/ingress-bandwidth": "100M" });
    cluster.apply(&single);
    cluster.await_pods("single", 1);
    let limits = cluster.topology.nodes[0]
        .run(["tc", "qdisc", "show"])
        .unwrap();
    assert!(limits.stdout.contains("100Mbit"), "{}", limits.stdout);
}

fn cluster_ips_reach_pods(cluster: &KubeCluster, pods: &[Value]) {
    let service = cluster.get("/api/v1/namespaces/default/services/web");
    let addresses = service["spec"]["clusterIPs"].as_array().unwrap();
    assert_eq!(addresses.len(), 2);
    for from in pods {
        let own = pod_ips(from);
        for ip in addresses {
            let ip = ip.as_str().unwrap();
            // Until every Pod has replied, those of the other node included.
            for to in pods {
                let what = format!(
                    "{} gets {} by its Service {ip}",
                    object_name(from),
                    object_name(to)
                );
                let fetch = || cluster.fetch(from, ip, 80);
                let reply = cluster.await_reply(&what, fetch, |reply| reply.pod == object_name(to));
                // kube-proxy masquerades a Pod that reaches itself by a Service.
                let is_own = own.contains(&reply.source.to_string());
                assert!(
                    is_own || object_name(from) == object_name(to),
                    "{what}: {reply:?}"
                );
            }
        }
    }
}

fn node_ports_reach_pods(cluster: &KubeCluster, pods: &[Value]) {
    let client = &cluster.topology.server;
    for (node, port) in cluster.topology.nodes.iter().zip(&cluster.topology.ports) {
        let addresses = [Some(port.v4.to_string()), port.v6.map(|ip| ip.to_string())];
        for ip in addresses.into_iter().flatten() {
            for to in pods {
                let is_here = to["spec"]["nodeName"] == node.name();
                let what = format!(
                    "NodePort of {} at {ip} leads to {}",
                    node.name(),
                    object_name(to)
                );
                let fetch = || fetch_from(client, &ip, 30080);
                cluster.await_reply(&what, fetch, |reply| reply.pod == object_name(to));
                if is_here {
                    let fetch = || fetch_from(client, &ip, 30081);
                    let reply =
                        cluster.await_reply(&what, fetch, |reply| reply.pod == object_name(to));
                    let server = &cluster.topology.server_port;
                    let own = [server.v4.to_string(), server.v6.unwrap().to_string()];
                    assert!(own.contains(&reply.source.to_string()), "{what}: {reply:?}");
                }
            }
            for _ in 0..8 {
                let reply = fetch_from(client, &ip, 30081).unwrap();
                let by = pods
                    .iter()
                    .find(|pod| object_name(pod) == reply.pod)
                    .unwrap();
                assert_eq!(
                    by["spec"]["nodeName"],
                    node.name(),
                    "policy Local: {reply:?}"
                );
            }
        }
    }
    let [one, two] = [0, 1].map(|index| cluster.topology.ports[index].v4.to_string());
    let fetch = || fetch_from(client, &one, 30082);
    cluster.await_reply("the node of the only Pod answers", fetch, |reply| {
        reply.pod == "single"
    });
    fetch_from(client, &two, 30082).expect_err("policy Local, and no Pod there");
}

fn a_pod_reaches_itself_by_its_service(cluster: &KubeCluster) {
    let single = &cluster.pods("single")[0];
    let service = cluster.get("/api/v1/namespaces/default/services/single");
    for ip in service["spec"]["clusterIPs"].as_array().unwrap() {
        let fetch = || cluster.fetch(single, ip.as_str().unwrap(), 80);
        cluster.await_reply("a Pod reaches itself", fetch, |reply| reply.pod == "single");
    }
}

fn a_host_port_reaches_its_pod(cluster: &KubeCluster, pods: &[Value]) {
    let port = &cluster.topology.ports[0];
    let addresses = [Some(port.v4.to_string()), port.v6.map(|ip| ip.to_string())];
    let server = &cluster.topology.server_port;
    let own = [server.v4.to_string(), server.v6.unwrap().to_string()];
    for ip in addresses.into_iter().flatten() {
        let fetch = || fetch_from(&cluster.topology.server, &ip, 8088);
        cluster.await_reply("a hostPort from outside", fetch, |reply| {
            reply.pod == "single" && own.contains(&reply.source.to_string())
        });
        for from in pods {
            let fetch = || cluster.fetch(from, &ip, 8088);
            cluster.await_reply("a hostPort from a Pod", fetch, |reply| {
                reply.pod == "single"
            });
        }
    }
}
