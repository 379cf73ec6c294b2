//! The API server authorizes as a real cluster.

use lab::Node;
use lab::kubernetes::{ControlPlane, User};
use serde_json::json;

fn status(user: &User, path: &str) -> u16 {
    user.ask("GET", path).unwrap().status
}

#[test]
fn a_user_has_the_rights_of_its_role_only() {
    let node = Node::new("control-plane").unwrap();
    let plane = ControlPlane::start(&node).unwrap();
    let admin = plane.admin();
    let account = json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": { "name": "daemon", "namespace": "kube-system" },
    });
    admin.apply(&account).unwrap();
    let daemon = plane.service_account("kube-system", "daemon").unwrap();
    let unknown = plane.user("unknown", None).unwrap();
    let kubelet = plane
        .user("system:node:node-1", Some("system:nodes"))
        .unwrap();

    for user in [&daemon, &unknown] {
        assert_eq!(status(user, "/api/v1/nodes"), 403, "{user:?}");
    }
    let node_1 = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "node-1" } });
    let node_2 = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "node-2" } });
    kubelet.apply(&node_1).unwrap();
    let refused = kubelet.apply(&node_2).unwrap_err();
    assert!(refused.to_string().contains(": 403 "), "{refused}");

    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": { "name": "reads-nodes" },
        "rules": [{ "apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list"] }],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": { "name": "daemon-reads-nodes" },
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "reads-nodes",
        },
        "subjects": [{ "kind": "ServiceAccount", "name": "daemon", "namespace": "kube-system" }],
    });
    for object in [role, binding] {
        admin.apply(&object).unwrap();
    }
    // The API server learns of new roles by watching itself.
    lab::eventually(lab::DEADLINE, "the daemon may read nodes", || {
        (status(&daemon, "/api/v1/nodes") == 200).then_some(())
    })
    .unwrap();
    assert_eq!(status(&daemon, "/api/v1/pods"), 403);
    assert_eq!(status(&unknown, "/api/v1/nodes"), 403);
}
