//! A real kube-apiserver beside a mesh. No kubelet runs: Nodes and Pods are objects only.

use std::fs;

use serde_json::{Value, json};

use super::mesh_cluster::{CLUSTER_CIDRS, JOIN_TIMEOUT, MeshCluster};
use super::mesh_node::MeshNode;
use crate::kubernetes::{ControlPlane, User};
use crate::tools;
use crate::wait::eventually;

const NAME: &str = "headcni-daemon";
const NAMESPACE: &str = "kube-system";
const KUBECONFIG: &str = "/etc/headcni/kubeconfig";

/// Its methods panic, as the assertions of a test do.
#[derive(Debug)]
pub struct KubeApi {
    pub plane: ControlPlane,
    /// The daemons' ServiceAccount, with the rights that docs/kubernetes.md lists.
    pub account: User,
}

impl KubeApi {
    /// Starts the control plane on the server's node. `rules` are the RBAC rules of the daemons.
    #[track_caller]
    pub fn start(cluster: &MeshCluster, rules: &Value) -> Self {
        let plane = ControlPlane::start(&cluster.topology.server).expect("start a control plane");
        let account = service_account(&plane, rules);
        Self { plane, account }
    }

    /// Gives a daemon access to the API and no pod CIDR. Only the first node gets the cluster CIDRs: the
    /// others have to derive them from Nodes.
    #[track_caller]
    pub fn configure(&self, node: &MeshNode, url: &str) {
        self.configure_as(node, url, &self.account);
    }

    #[track_caller]
    pub fn configure_as(&self, node: &MeshNode, url: &str, account: &User) {
        let kubeconfig = fs::read_to_string(account.kubeconfig()).expect("read the kubeconfig");
        let written = node.node.write(KUBECONFIG, kubeconfig);
        written.expect("write the kubeconfig");
        let program = tools::TAILSCALE.program("tailscaled");
        let base = match node.number {
            1 => format!("network: {{podCIDR: {{base: {CLUSTER_CIDRS:?}}}}}\n"),
            _ => String::new(),
        };
        let config = format!(
            "{base}headscale:\n  url: {url}\n  caFile: /etc/headcni/ca.pem\n  apiKeyFile: /etc/headcni/api-key\n\
             tailscale:\n  program: {}\nkubernetes:\n  kubeconfig: {KUBECONFIG}\n",
            program.display()
        );
        node.configure(&config).expect("write daemon.yaml");
    }

    /// Creates a Node as a kubelet would.
    #[track_caller]
    pub fn create_node(&self, name: &str) {
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } });
        self.plane.admin().apply(&node).expect("create a Node");
    }

    #[track_caller]
    pub fn node(&self, name: &str) -> Value {
        let path = format!("/api/v1/nodes/{name}");
        self.plane.admin().get(&path).expect("get a Node")
    }

    /// Waits until a Node has the daemon's annotations and `NetworkUnavailable` is False.
    #[track_caller]
    pub fn await_node_patched(&self, name: &str) {
        let patched = eventually(JOIN_TIMEOUT, "the daemon has patched its Node", || {
            let node = self.node(name);
            let annotations = &node["metadata"]["annotations"];
            let mut conditions = node["status"]["conditions"].as_array()?.iter();
            let network = conditions.find(|one| one["type"] == "NetworkUnavailable")?;
            let cidrs = node["spec"]["podCIDRs"].as_array()?.iter();
            let cidrs: Vec<&str> = cidrs.filter_map(Value::as_str).collect();
            let ips = annotations["headcni.io/tailnet-ips"].as_str()?;
            let is_patched = network["status"] == "False"
                && ips.starts_with("100.")
                && annotations["headcni.io/mesh"] == "Ready"
                && annotations["headcni.io/pod-cidrs"] == cidrs.join(",");
            is_patched.then_some(())
        });
        patched.unwrap_or_else(|error| panic!("{error:#}: {:#}", self.node(name)));
    }
}

fn service_account(plane: &ControlPlane, rules: &Value) -> User {
    let meta = json!({ "name": NAME, "namespace": NAMESPACE });
    let rbac = "rbac.authorization.k8s.io";
    let objects = [
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta }),
        json!({
            "apiVersion": format!("{rbac}/v1"),
            "kind": "ClusterRole",
            "metadata": { "name": NAME },
            "rules": rules,
        }),
        json!({
            "apiVersion": format!("{rbac}/v1"),
            "kind": "ClusterRoleBinding",
            "metadata": { "name": NAME },
            "roleRef": { "apiGroup": rbac, "kind": "ClusterRole", "name": NAME },
            "subjects": [{ "kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE }],
        }),
    ];
    for object in &objects {
        plane.admin().apply(object).expect("apply RBAC objects");
    }
    let account = plane.service_account(NAMESPACE, NAME);
    account.expect("get a token of the ServiceAccount")
}
