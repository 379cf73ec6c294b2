//! GET requests, answered by the real daemon.

use std::collections::BTreeSet;
use std::time::Duration;

use api::client::Client;
use api::messages::{ConditionStatus, PodState, Resource, RouteKind};
use lab::{Call, Netns, Node, Running, eventually, tools};
use serde_json::{Value, json};

use crate::scenario::{ARGS, SOCKET};
use crate::server::SOON;

const CONFIG: &str = "network: {podCIDR: {nodeLocal: 10.244.1.0/24, base: 10.244.0.0/16}}";
const CONFLIST: &str = "/etc/cni/net.d/10-headcni.conflist";

/// A node on which the daemon runs.
struct DaemonNode {
    node: Node,
    _daemon: Running,
}

impl DaemonNode {
    fn start() -> Self {
        let node = Node::new("node-a").unwrap();
        let plugins = tools::headcni_bin_dir();
        let setup = format!(
            "rm -rf /etc/cni /opt/cni /var/lib/cni /var/lib/headcni
             mkdir -p /etc/cni/net.d /opt/cni/bin /etc/headcni
             ln -s {}/* /opt/cni/bin/
             echo '{CONFIG}' > /etc/headcni/daemon.yaml",
            plugins.display()
        );
        node.run(["sh", "-ec", &setup]).unwrap();
        let mut command = node.command(tools::headcni_daemon().to_str().unwrap());
        let daemon = Running::spawn(command.arg("run"), b"").unwrap();
        let node = Self {
            node,
            _daemon: daemon,
        };
        let is_ready = || node.client().status().ok()?.ready.then_some(());
        eventually(SOON, "the daemon is ready", is_ready).unwrap();
        node
    }

    fn client(&self) -> Client {
        Client::new(self.node.path(SOCKET), Duration::from_secs(10))
    }

    fn add(&self, name: &str) -> Value {
        let list: Value = serde_json::from_str(&self.node.read(CONFLIST).unwrap()).unwrap();
        let mut conf = list["plugins"][0].clone();
        conf["cniVersion"] = json!("1.1.0");
        conf["name"] = list["name"].clone();
        let pod = self.node.pod(name).unwrap();
        let call = Call::new("ADD").path("/opt/cni/bin").conf(&conf);
        let outcome = call.pod(&pod).args(ARGS).run(&self.node, tools::headcni());
        outcome.unwrap().ok_json().unwrap()
    }

    /// The names that `ip` lists, as JSON.
    fn ip(&self, args: &[&str]) -> Vec<Value> {
        let line = ["ip", "-json"].into_iter().chain(args.iter().copied());
        serde_json::from_str(&self.node.run(line).unwrap().stdout).unwrap()
    }
}

#[test]
fn every_resource_agrees_with_the_node() {
    let node = DaemonNode::start();
    let result = node.add("p1");
    let address = result["ips"][0]["address"].as_str().unwrap();
    let ip = address.split('/').next().unwrap();
    let client = node.client();
    eventually(SOON, "the pod is listed", || {
        (client.pods().unwrap().len() == 1).then_some(())
    })
    .unwrap();

    let status = client.status().unwrap();
    assert_eq!((status.node_name.as_str(), status.pods), ("node-a", 1));
    assert_eq!(status.pod_cidrs[0].to_string(), "10.244.1.0/24");

    let pods = client.pods().unwrap();
    assert_eq!(pods[0].state, PodState::Attached);
    assert_eq!(pods[0].ips[0].to_string(), ip);
    let link = pods[0].host_link.clone().unwrap();

    let leases = client.leases().unwrap();
    assert_eq!(leases.len(), 1);
    assert_eq!(leases[0].ip.to_string(), ip);
    assert_eq!(leases[0].pod.as_ref().unwrap().name, "web-0");

    let interfaces = client.interfaces().unwrap();
    assert_eq!(interfaces.len(), 1, "{interfaces:?}");
    let interface = &interfaces[0];
    let kernels = &node.ip(&["link", "show", "dev", &link])[0];
    assert_eq!(interface.name, link);
    assert_eq!(kernels["ifindex"], interface.index);
    assert_eq!(kernels["mtu"], interface.mtu);
    assert_eq!(kernels["address"], interface.mac.as_str());
    assert!(interface.up);
    assert_eq!(interface.pod.as_ref().unwrap().name, "web-0");

    let routes = client.routes().unwrap();
    let is_pods = |route: &&api::messages::Route| route.dev.as_deref() == Some(&*link);
    let to_pod = routes.iter().find(is_pods).unwrap();
    assert_eq!(to_pod.dst.to_string(), format!("{ip}/32"));
    assert_eq!((to_pod.table, to_pod.kind), (254, RouteKind::Unicast));
    let unreachable = routes.iter().find(|route| {
        route.kind == RouteKind::Unreachable && route.dst.to_string() == "10.244.1.0/24"
    });
    assert!(unreachable.is_some(), "{routes:?}");
    let protocol = net::PROTO_HEADCNI.to_string();
    let kernels = node.ip(&["-4", "route", "show", "table", "all", "proto", &protocol]);
    let of_daemon = routes.iter().filter(|route| route.dst.addr().is_ipv4());
    assert_eq!(of_daemon.count(), kernels.len(), "{routes:?} {kernels:?}");

    let pod_cidr = client.pod_cidr().unwrap();
    assert_eq!(pod_cidr.local, status.pod_cidrs);
    assert_eq!(pod_cidr.base[0].to_string(), "10.244.0.0/16");
    assert!(pod_cidr.source.is_some() && !pod_cidr.tried.is_empty());

    let conditions = client.conditions().unwrap();
    let open = conditions.iter().find(|one| one.name == "SocketOpen");
    let open = open.unwrap();
    assert_eq!((open.status, open.required), (ConditionStatus::True, true));
    assert!(open.message.contains(SOCKET), "{}", open.message);
}

#[test]
fn curl_gets_every_resource_as_json() {
    let node = DaemonNode::start();
    let mut seen = BTreeSet::new();
    for resource in Resource::ALL {
        let url = format!("http://d{}", resource.path());
        let curl = ["curl", "-sSf", "--unix-socket", SOCKET, &url];
        let output = node.node.run(curl).unwrap();
        serde_json::from_str::<Value>(&output.stdout).unwrap();
        seen.insert(resource.name());
    }
    assert_eq!(seen.len(), 7);
}
