//! What this node's object says: the networks of its pods, its place in the mesh, and whether pods can
//! be started on it. Pure.

use std::net::IpAddr;

use ipnet::IpNet;
use jiff::{Timestamp, Unit};
use serde_json::{Map, Value, json};

use super::node::{MESH, NETWORK_UNAVAILABLE, Node, POD_CIDRS, TAILNET_IPS};
use node_core::conditions::{Condition, State};
use node_core::{MeshState, PodCidrs};

/// What this node's object is to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Words {
    pod_cidrs: String,
    tailnet_ips: String,
    mesh: String,
    /// Why no pod can be started here, if none can.
    unavailable: Option<String>,
}

impl Words {
    /// By what is known, and how all conditions are.
    pub(super) fn new(
        pod_cidrs: Option<&PodCidrs>,
        mesh: &MeshState,
        conditions: &[(Condition, State)],
    ) -> Self {
        let state = |wanted: Condition| {
            let found = conditions
                .iter()
                .find(|(condition, _)| *condition == wanted);
            found.map(|(_, state)| state)
        };
        let local: &[IpNet] = pod_cidrs.map_or(&[], |known| known.local.as_slice());
        let failing = [
            Condition::MeshJoined,
            Condition::RoutesServed,
            Condition::PolicyAllowsPods,
        ];
        let mut failing = failing
            .into_iter()
            .filter(|condition| state(*condition).is_some_and(|state| !state.holds));
        let written = state(Condition::CniConfigWritten);
        Self {
            pod_cidrs: list(local.iter().chain(&mesh.extra_host_routes)),
            tailnet_ips: list::<IpAddr>(mesh.tailnet_ips.iter()),
            mesh: failing.next().map_or("Ready", Condition::name).to_owned(),
            unavailable: written
                .filter(|state| !state.holds)
                .map(|state| state.message.clone()),
        }
    }

    /// The change of the object.
    pub(super) fn annotations(&self) -> Value {
        json!({"metadata": {"annotations": self.annotated().into_iter().collect::<Map<_, _>>()}})
    }

    /// Whether an object has these annotations.
    pub(super) fn are_annotated(&self, node: &Node) -> bool {
        let mut all = self.annotated().into_iter();
        all.all(|(key, value)| value.as_str() == node.annotation(&key))
    }

    /// What is empty is taken away.
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

    /// Whether an object's status says the same. Why there is a network may be said in words of others,
    /// who would have theirs back.
    pub(super) fn are_in_status(&self, node: &Node) -> bool {
        let said = node.network_unavailable();
        match &self.unavailable {
            Some(why) => said.is_some_and(|it| it.status == "True" && it.message == *why),
            None => said.is_some_and(|it| it.status == "False"),
        }
    }

    /// The change of its status: the condition that cloud providers' networks have as well. While it is
    /// true, no pod is scheduled here.
    pub(super) fn status(&self, now: Timestamp) -> Value {
        let (status, reason, message) = match &self.unavailable {
            Some(why) => ("True", "HeadcniNotServed", why.as_str()),
            None => ("False", "HeadcniIsUp", "headcni gives pods their network"),
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

    fn words(conditions: &Conditions) -> Words {
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
        Words::new(Some(&pod_cidrs), &mesh, &conditions.snapshot())
    }

    #[test]
    fn a_node_says_what_it_has_and_what_it_lacks() {
        let conditions = Conditions::default();
        conditions.holds(Condition::MeshJoined, "");
        conditions.fails(Condition::CniConfigWritten, "waiting for the mesh");
        let before = words(&conditions);
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
        let after = words(&conditions);
        assert_eq!(
            after.annotations()["metadata"]["annotations"][MESH],
            "Ready"
        );
        assert_eq!(
            after.status(now)["status"]["conditions"][0]["status"],
            "False"
        );
    }

    /// The object after these changes, as the API would have it.
    fn told(words: &Words) -> Value {
        let now = Timestamp::UNIX_EPOCH;
        let (mut node, status) = (words.annotations(), words.status(now));
        node["metadata"]["name"] = "n1".into();
        node["metadata"]["annotations"]["other"] = "kept".into();
        node["status"] = status["status"].clone();
        let annotations = node["metadata"]["annotations"].as_object_mut();
        annotations.unwrap().retain(|_, value| !value.is_null());
        node
    }

    #[test]
    fn an_object_is_told_what_it_does_not_say_and_nothing_else() {
        let conditions = Conditions::default();
        conditions.fails(Condition::CniConfigWritten, "waiting for the mesh");
        let before = words(&conditions);
        for condition in Condition::ALL {
            conditions.holds(condition, "");
        }
        let after = words(&conditions);
        let is_said = |words: &Words, node: &Value| {
            let node: Node = serde_json::from_value(node.clone()).unwrap();
            (words.are_annotated(&node), words.are_in_status(&node))
        };
        let all = (true, true);
        assert_eq!(is_said(&before, &told(&before)), all);
        assert_eq!(is_said(&after, &told(&after)), all);
        assert_eq!(is_said(&after, &told(&before)), (false, false));
        // Made anew by a kubelet.
        assert_eq!(
            is_said(&after, &json!({"metadata": {"name": "n1"}})),
            (false, false)
        );
        // Changed by hand.
        let mut node = told(&after);
        node["metadata"]["annotations"][MESH] = "Broken".into();
        assert_eq!(is_said(&after, &node), (false, true));
        let mut node = told(&after);
        let annotations = node["metadata"]["annotations"].as_object_mut();
        annotations.unwrap().remove(POD_CIDRS);
        assert_eq!(is_said(&after, &node), (false, true));
        // Another one's words for the same.
        let mut node = told(&after);
        node["status"]["conditions"][0]["message"] = "RouteController created a route".into();
        assert_eq!(is_said(&after, &node), all);
        node["status"]["conditions"][0]["status"] = "True".into();
        assert_eq!(is_said(&after, &node), (true, false));
    }

    #[test]
    fn what_is_not_known_is_taken_away() {
        let conditions = Conditions::default().snapshot();
        let words = Words::new(None, &MeshState::default(), &conditions);
        let annotations = words.annotations();
        let annotations = annotations["metadata"]["annotations"].as_object().unwrap();
        assert_eq!(annotations[POD_CIDRS], Value::Null);
        assert_eq!(annotations[TAILNET_IPS], Value::Null);
    }
}
