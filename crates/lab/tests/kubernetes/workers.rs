//! Kubelets that run Pods.

use std::time::Duration;

use lab::kubernetes::{ControlPlane, IMAGE, User, Worker};
use lab::{Netns, Node, Underlay, eventually, tools};
use serde_json::{Value, json};

const TIMEOUT: Duration = Duration::from_mins(1);

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{ "name": "busybox", "image": IMAGE }],
        },
    })
}

fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

fn await_ready(admin: &User, path: &str) -> Value {
    let ready = || Some(admin.get(path).unwrap()).filter(is_ready);
    eventually(TIMEOUT, &format!("{path} is ready"), ready)
        .unwrap_or_else(|error| panic!("{error}: {:#}", admin.get(path).unwrap()["status"]))
}

/// Installs the bridge plugin, as a CNI daemon would.
fn install_cni(node: &Node, admin: &User) {
    let plugins = tools::cni_plugin_dir();
    let copy = format!(
        "mkdir -p /opt/cni/bin && cp {}/* /opt/cni/bin",
        plugins.display()
    );
    node.run(["sh", "-c", &copy]).unwrap();
    let path = format!("/api/v1/nodes/{}", node.name());
    let cidrs = eventually(TIMEOUT, "the Node has PodCIDRs", || {
        admin.get(&path).unwrap()["spec"]["podCIDRs"]
            .as_array()
            .cloned()
    })
    .unwrap();
    let ranges: Vec<_> = cidrs
        .iter()
        .map(|cidr| json!([{ "subnet": cidr }]))
        .collect();
    let ipam = json!({ "type": "host-local", "ranges": ranges });
    let bridge = json!({
        "type": "bridge", "bridge": "cni0", "isGateway": true, "ipam": ipam,
    });
    let list = json!({ "cniVersion": "1.0.0", "name": "lab", "plugins": [bridge] });
    node.write("/etc/cni/net.d/10-lab.conflist", list.to_string())
        .unwrap();
}

#[test]
fn kubelets_run_pods_that_reach_each_other_and_leave_nothing() {
    let underlay = Underlay::new().unwrap();
    let [server, node] = ["control-plane", "node-1"].map(|name| {
        let node = Node::new(name).unwrap();
        underlay.plug(&node).unwrap();
        node
    });
    let mut plane = ControlPlane::start(&server).unwrap();
    plane.start_scheduler().unwrap();
    let mut worker = Worker::start(&node, &plane).unwrap();
    let admin = plane.admin();
    assert!(!is_ready(&admin.get("/api/v1/nodes/node-1").unwrap()));
    install_cni(&node, admin);
    await_ready(admin, "/api/v1/nodes/node-1");

    let [one, two] = ["one", "two"].map(|name| {
        admin.apply(&pod(name)).unwrap();
        format!("/api/v1/namespaces/default/pods/{name}")
    });
    let [one, two] = [one, two].map(|path| await_ready(admin, &path));
    for address in two["status"]["podIPs"].as_array().unwrap() {
        let address = address["ip"].as_str().unwrap();
        let output = worker.exec(&one, &["ping", "-c", "1", address]).unwrap();
        assert!(output.status.success(), "{address}: {output:?}");
    }
    assert_eq!(one["status"]["podIPs"].as_array().unwrap().len(), 2);

    // A restarted kubelet does not touch running containers.
    worker.stop_kubelet().unwrap();
    worker.resume_kubelet().unwrap();
    admin.apply(&pod("three")).unwrap();
    await_ready(admin, "/api/v1/namespaces/default/pods/three");
    let same = await_ready(admin, "/api/v1/namespaces/default/pods/one");
    let id = |pod: &Value| pod["status"]["containerStatuses"][0]["containerID"].clone();
    assert_eq!(id(&same), id(&one));

    drop(worker);
    let containers = format!("headcni-lab-{}", node.holder_pid());
    let cgroups = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    for line in cgroups.lines().filter(|line| line.contains(" - cgroup")) {
        let mounted = line.split(' ').nth(4).unwrap();
        let left = std::path::Path::new(mounted).join(&containers);
        assert!(!left.exists(), "{} is left", left.display());
    }
}
