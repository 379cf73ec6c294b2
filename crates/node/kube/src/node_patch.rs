//! The desired annotations and `NetworkUnavailable` condition of this node's Node object. Pure.

use std::net::IpAddr;

use ipnet::IpNet;
use jiff::{Timestamp, Unit};
use serde_json::{Map, Value, json};

use super::node::{MESH, NETWORK_UNAVAILABLE, Node, POD_CIDRS, TAILNET_IPS};
use node_core::conditions::{Condition, ConditionReport};
use node_core::{MeshState, PodCidrs};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodePatch {
    pod_cidrs: String,
    tailnet_ips: String,
    mesh: String,
    /// Why no pod can start here; `None` if pods can.
    unavailable: Option<String>,
}

impl NodePatch {
    pub(super) fn new(
        pod_cidrs: Option<&PodCidrs>,
        mesh: &MeshState,
        conditions: &[(Condition, ConditionReport)],
    ) -> Self {
        let state = |wanted: Condition| {
            let found = conditions
                .iter()
                .find(|(condition, _)| *condition == wanted);
            found.map(|(_, state)| state)
        };
        let local: &[IpNet] = pod_cidrs.map_or(&[], |pod_cidrs| pod_cidrs.local.as_slice());
        let failing = [
            Condition::MeshJoined,
            Condition::RoutesServed,
            Condition::PolicyAllowsPods,
        ];
        let mut failing = failing
            .into_iter()
            .filter(|condition| state(*condition).is_some_and(|state| !state.is_true()));
        let written = state(Condition::CniConfigWritten);
        Self {
            pod_cidrs: list(local.iter().chain(&mesh.extra_host_routes)),
            tailnet_ips: list::<IpAddr>(mesh.tailnet_ips.iter()),
            mesh: failing.next().map_or("Ready", Condition::name).to_owned(),
            unavailable: written
                .filter(|state| !state.is_true())
                .map(|state| state.message.clone()),
        }
    }

    /// A merge patch of the object.
    pub(super) fn annotations(&self) -> Value {
        json!({"metadata": {"annotations": self.annotated().into_iter().collect::<Map<_, _>>()}})
    }

    pub(super) fn matches_annotations(&self, node: &Node) -> bool {
        let mut all = self.annotated().into_iter();
        all.all(|(key, value)| value.as_str() == node.annotation(&key))
    }

    /// `null` removes an annotation.
    fn annotated(&self) -> [(String, Value); 3] {
        let value = |text: &str| match text {
            "" => Value::Null,
            text => text.into(),
        };
        [
            (POD_CIDRS.to_owned(), value(&self.pod_cidrs)),
            (TAILNET_IPS.to_owned(), value(&self.tailnet_ips)),
            (MESH.to_owned(), value(&self.mesh)),
        ]
    }

    /// Accepts a False of another controller, whatever its message: two controllers would overwrite each
    /// other for ever.
    pub(super) fn matches_status(&self, node: &Node) -> bool {
        let observed = node.network_unavailable();
        match &self.unavailable {
            Some(reason) => observed.is_some_and(|it| it.status == "True" && it.message == *reason),
            None => observed.is_some_and(|it| it.status == "False"),
        }
    }

    /// A strategic merge patch of the status. Cloud providers set the same condition. While it is True, no
    /// pod is scheduled here.
    pub(super) fn status(&self, now: Timestamp) -> Value {
        let (status, reason, message) = match &self.unavailable {
            Some(message) => ("True", "HeadcniNotReady", message.as_str()),
            None => ("False", "HeadcniReady", "headcni can set up pod networks"),
        };
        let now = now.round(Unit::Second).unwrap_or(now).to_string();
        json!({"status": {"conditions": [{
            "type": NETWORK_UNAVAILABLE,
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }]}})
    }
}

fn list<'a, T: ToString + 'a>(all: impl Iterator<Item = &'a T>) -> String {
    let texts: Vec<String> = all.map(ToString::to_string).collect();
    texts.join(",")
}

#[cfg(test)]
mod tests {
    use node_core::CidrSource;
    use node_core::conditions::Conditions;

    use super::*;

    fn patch(conditions: &Conditions) -> NodePatch {
        let local: Vec<IpNet> = vec!["10.244.1.0/24".parse().unwrap()];
        let pod_cidrs = PodCidrs {
            base: local.clone(),
            local,
            source: CidrSource::NodeLocal,
            base_source: None,
        };
        let mesh = MeshState {
            tailnet_ips: vec!["100.64.0.1".parse().unwrap()],
            extra_host_routes: vec!["10.244.200.9/32".parse().unwrap()],
            ..MeshState::default()
        };
        NodePatch::new(Some(&pod_cidrs), &mesh, &conditions.snapshot())
    }

    #[test]
    fn a_patch_has_the_pod_cidrs_and_the_failing_condition() {
        let conditions = Conditions::default();
        conditions.holds(Condition::MeshJoined, "");
        conditions.fails(Condition::CniConfigWritten, "waiting for the mesh");
        let before = patch(&conditions);
        let annotations = &before.annotations()["metadata"]["annotations"];
        assert_eq!(annotations[POD_CIDRS], "10.244.1.0/24,10.244.200.9/32");
        assert_eq!(annotations[TAILNET_IPS], "100.64.0.1");
        assert_eq!(annotations[MESH], "RoutesServed");
        let now: Timestamp = "2026-11-16T10:00:00.7Z".parse().unwrap();
        let status = &before.status(now)["status"]["conditions"][0];
        assert_eq!(status["status"], "True");
        assert_eq!(status["message"], "waiting for the mesh");
        assert_eq!(status["lastTransitionTime"], "2026-11-16T10:00:01Z");

        for condition in Condition::ALL {
            conditions.holds(condition, "");
        }
        let after = patch(&conditions);
        assert_eq!(
            after.annotations()["metadata"]["annotations"][MESH],
            "Ready"
        );
        assert_eq!(
            after.status(now)["status"]["conditions"][0]["status"],
            "False"
        );
    }

    /// The object after these patches.
    fn patched(patch: &NodePatch) -> Value {
        let now = Timestamp::UNIX_EPOCH;
        let (mut node, status) = (patch.annotations(), patch.status(now));
        node["metadata"]["name"] = "n1".into();
        node["metadata"]["annotations"]["other"] = "kept".into();
        node["status"] = status["status"].clone();
        let annotations = node["metadata"]["annotations"].as_object_mut();
        annotations.unwrap().retain(|_, value| !value.is_null());
        node
    }

    #[test]
    fn an_object_matches_until_our_parts_are_changed() {
        let conditions = Conditions::default();
        conditions.fails(Condition::CniConfigWritten, "waiting for the mesh");
        let before = patch(&conditions);
        for condition in Condition::ALL {
            conditions.holds(condition, "");
        }
        let after = patch(&conditions);
        let matches = |patch: &NodePatch, node: &Value| {
            let node: Node = serde_json::from_value(node.clone()).unwrap();
            (
                patch.matches_annotations(&node),
                patch.matches_status(&node),
            )
        };
        let all = (true, true);
        assert_eq!(matches(&before, &patched(&before)), all);
        assert_eq!(matches(&after, &patched(&after)), all);
        assert_eq!(matches(&after, &patched(&before)), (false, false));
        // Recreated by a kubelet.
        assert_eq!(
            matches(&after, &json!({"metadata": {"name": "n1"}})),
            (false, false)
        );
        // Changed by hand.
        let mut node = patched(&after);
        node["metadata"]["annotations"][MESH] = "Broken".into();
        assert_eq!(matches(&after, &node), (false, true));
        let mut node = patched(&after);
        let annotations = node["metadata"]["annotations"].as_object_mut();
        annotations.unwrap().remove(POD_CIDRS);
        assert_eq!(matches(&after, &node), (false, true));
        // Another controller's message.
        let mut node = patched(&after);
        node["status"]["conditions"][0]["message"] = "RouteController created a route".into();
        assert_eq!(matches(&after, &node), all);
        node["status"]["conditions"][0]["status"] = "True".into();
        assert_eq!(matches(&after, &node), (true, false));
    }

    #[test]
    fn an_annotation_without_a_value_is_removed() {
        let conditions = Conditions::default().snapshot();
        let patch = NodePatch::new(None, &MeshState::default(), &conditions);
        let annotations = patch.annotations();
        let annotations = annotations["metadata"]["annotations"].as_object().unwrap();
        assert_eq!(annotations[POD_CIDRS], Value::Null);
        assert_eq!(annotations[TAILNET_IPS], Value::Null);
    }
}
