//! A control plane beside a mesh, and daemons with no more rights than the documentation says.

use std::fs;
use std::net::{IpAddr, SocketAddr};

use lab::kubernetes::{ControlPlane, User};
use lab::{AttachedPod, EchoServer, Family, JOIN_TIMEOUT, MeshNode, Netns, CLUSTER_CIDRS, eventually, tools};
use serde_json::{Value, json};

const NAME: &str = "headcni-daemon";
const NAMESPACE: &str = "kube-system";
const KUBECONFIG: &str = "/etc/headcni/kubeconfig";

/// The rights that docs/kubernetes.md says are enough.
fn rules() -> Value {
    let document = include_str!("../../../../docs/kubernetes.md");
    let (_, rest) = document.split_once("```yaml\nrules:\n").unwrap();
    let (rules, _) = rest.split_once("```").unwrap();
    let list = rules.replace("  - {", "- {");
    serde_saphyr::from_str(&list).unwrap()
}

/// A service account with these rights.
pub(crate) fn account<'a>(plane: &ControlPlane) -> User {
    let meta = json!({ "name": NAME, "namespace": NAMESPACE });
    let objects = [
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": { "name": NAME },
            "rules": rules(),
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": { "name": NAME },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME },
            "subjects": [{ "kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE }],
        }),
    ];
    for object in &objects {
        plane.admin().apply(object).unwrap();
    }
    plane.service_account(NAMESPACE, NAME).unwrap()
}

/// Tells a daemon about the API, and nothing about its networks. Only the first knows the cluster's: the
/// others have Nodes to go by.
pub(crate) fn configure(member: &MeshNode, url: &str, user: &User) {
    let kubeconfig = fs::read_to_string(user.kubeconfig()).unwrap();
    member.node.write(KUBECONFIG, kubeconfig).unwrap();
    let program = tools::TAILSCALE.program("tailscaled");
    let base = match member.number {
        1 => format!("network: {{podCIDR: {{base: {CLUSTER_CIDRS:?}}}}}\n"),
        _ => String::new(),
    };
    let config = format!(
        "{base}headscale:\n  url: {url}\n  caFile: /etc/headcni/ca.pem\n  apiKeyFile: /etc/headcni/api-key\n\
         tailscale:\n  program: {}\nkubernetes:\n  kubeconfig: {KUBECONFIG}\n",
        program.display()
    );
    member.configure(&config).unwrap();
}

/// Makes a Node as a kubelet would.
pub(crate) fn post_node(plane: &ControlPlane, name: &str) {
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } });
    plane.admin().apply(&node).unwrap();
}

/// What the API knows of a Node.
pub(crate) fn node(plane: &ControlPlane, name: &str) -> Value {
    let path = format!("/api/v1/nodes/{name}");
    plane.admin().get(&path).unwrap()
}

/// The Node has the daemon's words.
pub(crate) fn says_what_it_has(plane: &ControlPlane, name: &str) {
    eventually(JOIN_TIMEOUT, "the Node says that all is well", || {
        let node = node(plane, name);
        let annotations = &node["metadata"]["annotations"];
        let conditions = node["status"]["conditions"].as_array()?.iter();
        let mut networks = conditions.filter(|one| one["type"] == "NetworkUnavailable");
        let is_available = networks.next()?["status"] == "False";
        let cidrs: Vec<&str> = node["spec"]["podCIDRs"]
            .as_array()?
            .iter()
            .filter_map(Value::as_str)
            .collect();
        let has_ips = annotations["headcni.io/tailnet-ips"]
            .as_str()?
            .starts_with("100.");
        let is_ready = annotations["headcni.io/mesh"] == "Ready";
        let has_networks = annotations["headcni.io/pod-cidrs"] == cidrs.join(",");
        (is_available && has_ips && is_ready && has_networks).then_some(())
    })
    .unwrap_or_else(|error| panic!("{error:#}: {:#}", node(plane, name)));
}

/// Every pod reaches every other under its own address.
pub(crate) fn await_all_to_all(pods: &[AttachedPod]) {
    for to in pods {
        for from in pods.iter().filter(|from| from.ips != to.ips) {
            for ip in &to.ips {
                eventually(JOIN_TIMEOUT, "pods talk", || {
                    let seen = call(from, to, *ip).ok()?;
                    from.ips.contains(&seen).then_some(())
                })
                .unwrap();
            }
        }
    }
}

fn call(from: &AttachedPod, to: &AttachedPod, ip: IpAddr) -> anyhow::Result<IpAddr> {
    let family = if ip.is_ipv4() { Family::V4 } else { Family::V6 };
    let server = EchoServer::start(&to.pod, family, 0)?;
    from.pod
        .call_echo(SocketAddr::new(ip, server.port()?), "hello")
}
