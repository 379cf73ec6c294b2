//! One command, and the cluster has a network.

use std::thread;
use std::time::Duration;

use lab::kubernetes::ProxyMode;
use lab::{Topology, Netns, Site, eventually_slowly};
use serde_json::{Value, json};

use crate::whole::{Whole, ask_from, ips, name, pod, service, web, web_on};

/// A server that is not there is given up after some time. So long, nothing must have happened.
const A_WHILE: Duration = Duration::from_secs(15);

#[test]
fn one_install_gives_pods_and_services_their_network() {
    let grounds = Topology::new(&[Site::Open, Site::Open]).unwrap();
    let mut whole = Whole::new(&grounds);

    nodes_are_ready_when_the_mesh_serves_them(&mut whole);
    whole
        .helm
        .run(&["test", "headcni"])
        .unwrap_or_else(|error| panic!("{error:#}\n{}", whole.told()));

    let pods = deploy(&whole);
    whole.await_all_to_all(&pods);
    nodes_reach_pods(&whole, &pods);
    expose(&whole);
    for mode in [ProxyMode::Nftables, ProxyMode::Iptables] {
        for worker in &mut whole.workers {
            worker.use_proxy_mode(mode).unwrap();
        }
        services_lead_to_pods(&whole, &pods);
        node_ports_lead_to_pods(&whole, &pods);
        pods_reach_themselves_by_their_service(&whole);
        host_ports_lead_to_their_pod(&whole, &pods);
    }
}

/// Headscale is away at first: daemons run, but no node is Ready.
fn nodes_are_ready_when_the_mesh_serves_them(whole: &mut Whole<'_>) {
    whole.headscale.kill().unwrap();
    whole.install();
    let nodes = &whole.grounds.nodes;
    for node in nodes {
        let what = format!("the daemon of {} waits for the mesh", node.name());
        eventually_slowly(crate::whole::SOON, &what, || {
            let object = whole.get(&format!("/api/v1/nodes/{}", node.name()));
            let conditions = object["status"]["conditions"].as_array()?.iter();
            let mut conditions = conditions.filter(|one| one["type"] == "NetworkUnavailable");
            (conditions.next()?["status"] == "True").then_some(())
        })
        .unwrap_or_else(|error| panic!("{error:#}\n{}", whole.told()));
    }
    thread::sleep(A_WHILE);
    for node in nodes {
        assert!(!whole.is_node_ready(node.name()), "{}", whole.told());
    }
    whole.headscale.resume().unwrap();
    whole.await_nodes();
}

fn deploy(whole: &Whole<'_>) -> Vec<Value> {
    let mut spec = web();
    spec["topologySpreadConstraints"] = json!([{
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": { "matchLabels": { "app": "web" } },
    }]);
    whole.apply(&json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": "web", "namespace": "default" },
        "spec": {
            "replicas": 4,
            "selector": { "matchLabels": { "app": "web" } },
            "template": { "metadata": { "labels": { "app": "web" } }, "spec": spec },
        },
    }));
    let pods = whole.await_pods("web", 4);
    for node in &whole.grounds.nodes {
        let here = pods
            .iter()
            .filter(|pod| pod["spec"]["nodeName"] == node.name());
        assert_eq!(here.count(), 2);
    }
    pods
}

/// As a kubelet's probes, an API server's webhooks and Pods in the host's network do.
fn nodes_reach_pods(whole: &Whole<'_>, pods: &[Value]) {
    for node in &whole.grounds.nodes {
        for to in pods {
            for ip in ips(to) {
                let what = format!("{} reaches {} at {ip}", node.name(), name(to));
                let ask = || ask_from(node, &ip, 8080);
                whole.await_answer(&what, ask, |answer| answer.by == name(to));
            }
        }
    }
}

/// Services of all kinds, and Pods for them of which there is one only.
fn expose(whole: &Whole<'_>) {
    let ports = |number: u16| json!([{ "port": 80, "targetPort": 8080, "nodePort": number }]);
    whole.apply(&service("web", "web", &json!({})));
    for (policy, port) in [("Cluster", 30080), ("Local", 30081)] {
        let more = json!({
            "type": "NodePort", "externalTrafficPolicy": policy, "ports": ports(port),
        });
        whole.apply(&service(
            &format!("web-{}", policy.to_lowercase()),
            "web",
            &more,
        ));
    }
    let more = json!({
        "type": "NodePort", "externalTrafficPolicy": "Local", "ports": ports(30082),
    });
    whole.apply(&service("single", "single", &more));
    let mut spec = web_on("node-1");
    spec["containers"][0]["ports"] = json!([{ "containerPort": 8080, "hostPort": 8088 }]);
    let mut single = pod("single", "single", &spec);
    single["metadata"]["annotations"] = json!({ "kubernetes.io/ingress-bandwidth": "100M" });
    whole.apply(&single);
    whole.await_pods("single", 1);
    let limits = whole.grounds.nodes[0].run(["tc", "qdisc", "show"]).unwrap();
    assert!(limits.stdout.contains("100Mbit"), "{}", limits.stdout);
}

fn services_lead_to_pods(whole: &Whole<'_>, pods: &[Value]) {
    let service = whole.get("/api/v1/namespaces/default/services/web");
    let addresses = service["spec"]["clusterIPs"].as_array().unwrap();
    assert_eq!(addresses.len(), 2);
    for from in pods {
        let own = ips(from);
        for ip in addresses {
            let ip = ip.as_str().unwrap();
            // Until every Pod has answered, those of the other node, too.
            for to in pods {
                let what = format!("{} gets {} by its Service {ip}", name(from), name(to));
                let ask = || whole.ask(from, ip, 80);
                let answer = whole.await_answer(&what, ask, |answer| answer.by == name(to));
                // Who asks itself by a Service is seen as the node: the kernel would drop it otherwise.
                let is_own = own.contains(&answer.seen.to_string());
                assert!(is_own || name(from) == name(to), "{what}: {answer:?}");
            }
        }
    }
}

fn node_ports_lead_to_pods(whole: &Whole<'_>, pods: &[Value]) {
    let client = &whole.grounds.server;
    for (node, port) in whole.grounds.nodes.iter().zip(&whole.grounds.ports) {
        let addresses = [Some(port.v4.to_string()), port.v6.map(|ip| ip.to_string())];
        for ip in addresses.into_iter().flatten() {
            for to in pods {
                let is_here = to["spec"]["nodeName"] == node.name();
                let what = format!("NodePort of {} at {ip} leads to {}", node.name(), name(to));
                let ask = || ask_from(client, &ip, 30080);
                whole.await_answer(&what, ask, |answer| answer.by == name(to));
                if is_here {
                    let ask = || ask_from(client, &ip, 30081);
                    let answer = whole.await_answer(&what, ask, |answer| answer.by == name(to));
                    let server = &whole.grounds.server_port;
                    let own = [server.v4.to_string(), server.v6.unwrap().to_string()];
                    assert!(own.contains(&answer.seen.to_string()), "{what}: {answer:?}");
                }
            }
            for _ in 0..8 {
                let answer = ask_from(client, &ip, 30081).unwrap();
                let by = pods.iter().find(|pod| name(pod) == answer.by).unwrap();
                assert_eq!(
                    by["spec"]["nodeName"],
                    node.name(),
                    "policy Local: {answer:?}"
                );
            }
        }
    }
    let [one, two] = [0, 1].map(|index| whole.grounds.ports[index].v4.to_string());
    let ask = || ask_from(client, &one, 30082);
    whole.await_answer("the node of the only Pod answers", ask, |answer| {
        answer.by == "single"
    });
    ask_from(client, &two, 30082).expect_err("policy Local, and no Pod there");
}

fn pods_reach_themselves_by_their_service(whole: &Whole<'_>) {
    let single = &whole.pods("single")[0];
    let service = whole.get("/api/v1/namespaces/default/services/single");
    for ip in service["spec"]["clusterIPs"].as_array().unwrap() {
        let ask = || whole.ask(single, ip.as_str().unwrap(), 80);
        whole.await_answer("a Pod reaches itself", ask, |answer| answer.by == "single");
    }
}

fn host_ports_lead_to_their_pod(whole: &Whole<'_>, pods: &[Value]) {
    let port = &whole.grounds.ports[0];
    let addresses = [Some(port.v4.to_string()), port.v6.map(|ip| ip.to_string())];
    let server = &whole.grounds.server_port;
    let own = [server.v4.to_string(), server.v6.unwrap().to_string()];
    for ip in addresses.into_iter().flatten() {
        let ask = || ask_from(&whole.grounds.server, &ip, 8088);
        whole.await_answer("a hostPort from outside", ask, |answer| {
            answer.by == "single" && own.contains(&answer.seen.to_string())
        });
        for from in pods {
            let ask = || whole.ask(from, &ip, 8088);
            whole.await_answer("a hostPort from a Pod", ask, |answer| answer.by == "single");
        }
    }
}
