//! One command, and the cluster has a network.

use std::thread;
use std::time::Duration;

use lab::kubernetes::ProxyMode;
use lab::scenario::{KubeCluster, fetch_from, object_name, pod_ips, pod_object, service_object, web_spec, web_spec_on};
use lab::{Netns, eventually_slowly};
use serde_json::{Value, json};


/// A server that is not there is given up after some time. So long, nothing must have happened.
const A_WHILE: Duration = Duration::from_secs(15);

#[test]
fn one_install_gives_pods_and_services_their_network() {
    let mut cluster = KubeCluster::prepare(2);

    nodes_are_ready_when_the_mesh_serves_them(&mut cluster);
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
        services_lead_to_pods(&cluster, &pods);
        node_ports_lead_to_pods(&cluster, &pods);
        pods_reach_themselves_by_their_service(&cluster);
        host_ports_lead_to_their_pod(&cluster, &pods);
    }
}

/// Headscale is away at first: daemons run, but no node is Ready.
fn nodes_are_ready_when_the_mesh_serves_them(cluster: &mut KubeCluster) {
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
    thread::sleep(A_WHILE);
    for node in nodes {
        assert!(!cluster.is_node_ready(node.name()), "{}", cluster.diagnostics());
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

/// As a kubelet's probes, an API server's webhooks and Pods in the host's network do.
fn nodes_reach_pods(cluster: &KubeCluster, pods: &[Value]) {
    for node in &cluster.topology.nodes {
        for to in pods {
            for ip in pod_ips(to) {
                let what = format!("{} reaches {} at {ip}", node.name(), object_name(to));
                let ask = || fetch_from(node, &ip, 8080);
                cluster.await_reply(&what, ask, |reply| reply.pod == object_name(to));
            }
        }
    }
}

/// Services of all kinds, and Pods for them of which there is one only.
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
    let limits = cluster.topology.nodes[0].run(["tc", "qdisc", "show"]).unwrap();
    assert!(limits.stdout.contains("100Mbit"), "{}", limits.stdout);
}

fn services_lead_to_pods(cluster: &KubeCluster, pods: &[Value]) {
    let service = cluster.get("/api/v1/namespaces/default/services/web");
    let addresses = service["spec"]["clusterIPs"].as_array().unwrap();
    assert_eq!(addresses.len(), 2);
    for from in pods {
        let own = pod_ips(from);
        for ip in addresses {
            let ip = ip.as_str().unwrap();
            // Until every Pod has answered, those of the other node, too.
            for to in pods {
                let what = format!("{} gets {} by its Service {ip}", object_name(from), object_name(to));
                let ask = || cluster.fetch(from, ip, 80);
                let answer = cluster.await_reply(&what, ask, |reply| reply.pod == object_name(to));
                // Who asks itself by a Service is seen as the node: the kernel would drop it otherwise.
                let is_own = own.contains(&reply.source.to_string());
                assert!(is_own || object_name(from) == object_name(to), "{what}: {answer:?}");
            }
        }
    }
}

fn node_ports_lead_to_pods(cluster: &KubeCluster, pods: &[Value]) {
    let client = &cluster.topology.server;
    for (node, port) in cluster.topology.nodes.iter().zip(&cluster.topology.ports) {
        let addresses = [Some(port.v4.to_string()), port.v6.map(|ip| ip.to_string())];
        for ip in addresses.into_iter().flatten() {
            for to in pods {
                let is_here = to["spec"]["nodeName"] == node.name();
                let what = format!("NodePort of {} at {ip} leads to {}", node.name(), object_name(to));
                let ask = || fetch_from(client, &ip, 30080);
                cluster.await_reply(&what, ask, |reply| reply.pod == object_name(to));
                if is_here {
                    let ask = || fetch_from(client, &ip, 30081);
                    let answer = cluster.await_reply(&what, ask, |reply| reply.pod == object_name(to));
                    let server = &cluster.topology.server_port;
                    let own = [server.v4.to_string(), server.v6.unwrap().to_string()];
                    assert!(own.contains(&reply.source.to_string()), "{what}: {answer:?}");
                }
            }
            for _ in 0..8 {
                let answer = fetch_from(client, &ip, 30081).unwrap();
                let by = pods.iter().find(|pod| object_name(pod) == reply.pod).unwrap();
                assert_eq!(
                    by["spec"]["nodeName"],
                    node.name(),
                    "policy Local: {answer:?}"
                );
            }
        }
    }
    let [one, two] = [0, 1].map(|index| cluster.topology.ports[index].v4.to_string());
    let ask = || fetch_from(client, &one, 30082);
    cluster.await_reply("the node of the only Pod answers", ask, |answer| {
        reply.pod == "single"
    });
    fetch_from(client, &two, 30082).expect_err("policy Local, and no Pod there");
}

fn pods_reach_themselves_by_their_service(cluster: &KubeCluster) {
    let single = &cluster.pods("single")[0];
    let service = cluster.get("/api/v1/namespaces/default/services/single");
    for ip in service["spec"]["clusterIPs"].as_array().unwrap() {
        let ask = || cluster.fetch(single, ip.as_str().unwrap(), 80);
        cluster.await_reply("a Pod reaches itself", ask, |reply| reply.pod == "single");
    }
}

fn host_ports_lead_to_their_pod(cluster: &KubeCluster, pods: &[Value]) {
    let port = &cluster.topology.ports[0];
    let addresses = [Some(port.v4.to_string()), port.v6.map(|ip| ip.to_string())];
    let server = &cluster.topology.server_port;
    let own = [server.v4.to_string(), server.v6.unwrap().to_string()];
    for ip in addresses.into_iter().flatten() {
        let ask = || fetch_from(&cluster.topology.server, &ip, 8088);
        cluster.await_reply("a hostPort from outside", ask, |answer| {
            reply.pod == "single" && own.contains(&reply.source.to_string())
        });
        for from in pods {
            let ask = || cluster.fetch(from, &ip, 8088);
            cluster.await_reply("a hostPort from a Pod", ask, |reply| reply.pod == "single");
        }
    }
}
