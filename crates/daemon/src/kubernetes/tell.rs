//! What this node's object says: the networks of its pods, its place in the mesh, and whether pods can
//! be started on it. Pure.

use std::net::IpAddr;

use ipnet::IpNet;
use jiff::{Timestamp, Unit};
use serde_json::{Value, json};

use super::node::{MESH, POD_CIDRS, TAILNET_IPS};
use crate::conditions::{Condition, State};
use crate::settings::Settings;

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
    pub(super) fn new(settings: &Settings, conditions: &[(Condition, State)]) -> Self {
        let state = |wanted: Condition| {
            let found = conditions
                .iter()
                .find(|(condition, _)| *condition == wanted);
            found.map(|(_, state)| state)
        };
        let local = settings.networks.as_ref();
        let local: &[IpNet] = local.map_or(&[], |networks| networks.local.as_slice());
        let mesh = &settings.mesh;
        let failing = [
            Condition::MeshJoined,
            Condition::NetworksServed,
            Condition::PolicyAllowsPods,
        ];
        let mut failing = failing
            .into_iter()
            .filter(|condition| state(*condition).is_some_and(|state| !state.holds));
        let written = state(Condition::CniConfigWritten);
        Self {
            pod_cidrs: list(local.iter().chain(&mesh.outside)),
            tailnet_ips: list::<IpAddr>(mesh.addresses.iter()),
            mesh: failing.next().map_or("Ready", Condition::name).to_owned(),
            unavailable: written
                .filter(|state| !state.holds)
                .map(|state| state.message.clone()),
        }
    }

    /// The change of the object.
    pub(super) fn annotations(&self) -> Value {
        // What is empty is taken away.
        let value = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        json!({"metadata": {"annotations": {
            POD_CIDRS: value(&self.pod_cidrs),
            TAILNET_IPS: value(&self.tailnet_ips),
            MESH: self.mesh,
        }}})
    }

    /// Whether the part of the status is another one than before.
    pub(super) fn has_other_status(&self, before: Option<&Self>) -> bool {
        before.is_none_or(|before| before.unavailable != self.unavailable)
    }

    /// Whether the rest is.
    pub(super) fn has_other_annotations(&self, before: Option<&Self>) -> bool {
        before.is_none_or(|before| before.annotations() != self.annotations())
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
            "type": "NetworkUnavailable",
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
    use std::sync::Arc;

    use super::*;
    use crate::conditions::Conditions;
    use crate::config::Config;
    use crate::mesh::View;
    use crate::node_name;
    use crate::podcidr::{NodeNetworks, Source};

    fn settings() -> Settings {
        let node = node_name::find(Some("n1"), None).unwrap();
        let mut settings = Settings::new(Config::default(), node);
        let local: Vec<IpNet> = vec!["10.244.1.0/24".parse().unwrap()];
        settings.networks = Some(Arc::new(NodeNetworks {
            base: local.clone(),
            local,
            source: Source::NodeLocal,
            base_source: None,
        }));
        settings.mesh = Arc::new(View {
            addresses: vec!["100.64.0.1".parse().unwrap()],
            outside: vec!["10.244.200.9/32".parse().unwrap()],
            ..View::default()
        });
        settings
    }

    #[test]
    fn a_node_says_what_it_has_and_what_it_lacks() {
        let conditions = Conditions::default();
        conditions.holds(Condition::MeshJoined, "");
        conditions.fails(Condition::CniConfigWritten, "waiting for the mesh");
        let before = Words::new(&settings(), &conditions.snapshot());
        let annotations = &before.annotations()["metadata"]["annotations"];
        assert_eq!(annotations[POD_CIDRS], "10.244.1.0/24,10.244.200.9/32");
        assert_eq!(annotations[TAILNET_IPS], "100.64.0.1");
        assert_eq!(annotations[MESH], "NetworksServed");
        let now: Timestamp = "2026-11-16T10:00:00.7Z".parse().unwrap();
        let status = &before.status(now)["status"]["conditions"][0];
        assert_eq!(status["status"], "True");
        assert_eq!(status["message"], "waiting for the mesh");
        assert_eq!(status["lastTransitionTime"], "2026-11-16T10:00:01Z");

        for condition in Condition::ALL {
            conditions.holds(condition, "");
        }
        let after = Words::new(&settings(), &conditions.snapshot());
        assert_eq!(
            after.annotations()["metadata"]["annotations"][MESH],
            "Ready"
        );
        assert_eq!(
            after.status(now)["status"]["conditions"][0]["status"],
            "False"
        );
        assert!(
            after.has_other_status(Some(&before)) && after.has_other_annotations(Some(&before))
        );
        assert!(!after.has_other_status(Some(&after)) && after.has_other_status(None));
    }

    #[test]
    fn what_is_not_known_is_taken_away() {
        let node = node_name::find(Some("n1"), None).unwrap();
        let settings = Settings::new(Config::default(), node);
        let words = Words::new(&settings, &Conditions::default().snapshot());
        let annotations = &words.annotations()["metadata"]["annotations"];
        assert_eq!(annotations[POD_CIDRS], Value::Null);
        assert_eq!(annotations[TAILNET_IPS], Value::Null);
    }
}
