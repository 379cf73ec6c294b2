//! Names, and what the `DaemonSet` has to be like.

use std::collections::BTreeSet;

use super::object::{Rendering, list};

/// What people and documents call it.
pub(super) const DAEMON_SET: &str = "headcni-daemon";
/// Kinds that have no namespace.
const CLUSTER_WIDE: [&str; 2] = ["ClusterRole", "ClusterRoleBinding"];

/// What is wrong with them.
pub(super) fn faults(rendering: &Rendering) -> Vec<String> {
    let mut faults = Vec::new();
    let mut seen = BTreeSet::new();
    for object in &rendering.objects {
        let title = object.title();
        if object.kind().is_empty() || object.name().is_empty() {
            faults.push(format!("an object without kind or name: {}", object.value));
        }
        if object.value["apiVersion"]
            .as_str()
            .unwrap_or_default()
            .is_empty()
        {
            faults.push(format!("{title} has no apiVersion"));
        }
        if object.namespace().is_empty() != CLUSTER_WIDE.contains(&object.kind()) {
            faults.push(format!(
                "{title} is in the namespace {:?}",
                object.namespace()
            ));
        }
        if !seen.insert((object.kind(), object.namespace(), object.name())) {
            faults.push(format!("{title} is there twice"));
        }
    }
    faults.extend(daemon_set_faults(rendering));
    faults
}

fn daemon_set_faults(rendering: &Rendering) -> Vec<String> {
    let Some(daemon_set) = rendering.find("DaemonSet", DAEMON_SET) else {
        return vec![format!("there is no DaemonSet {DAEMON_SET}")];
    };
    let pod = &daemon_set.value["spec"]["template"]["spec"];
    let mut faults = Vec::new();
    let mut must = |holds: bool, what: &str| {
        if !holds {
            faults.push(format!("DaemonSet {DAEMON_SET} {what}"));
        }
    };
    must(pod["hostNetwork"] == true, "is not in the host's network");
    // The cluster's resolver needs the network that is to be made.
    must(
        pod["dnsPolicy"] == "Default",
        "does not use the node's resolver",
    );
    must(
        pod["priorityClassName"] == "system-node-critical",
        "can be evicted",
    );
    must(
        pod["enableServiceLinks"] == false,
        "gets variables of services",
    );
    let tolerates_all = list(&pod["tolerations"])
        .any(|it| it["operator"] == "Exists" && it["key"].is_null() && it["effect"].is_null());
    must(tolerates_all, "does not tolerate everything");
    let names: Vec<_> = list(&pod["containers"]).map(|it| &it["name"]).collect();
    must(
        names == [DAEMON_SET],
        "has no container of that name, or another one",
    );
    let labels = &daemon_set.value["spec"]["template"]["metadata"]["labels"];
    let selector = daemon_set.value["spec"]["selector"]["matchLabels"].as_object();
    let selects = selector.is_some_and(|it| it.iter().all(|(key, value)| labels[key] == *value));
    must(selects, "does not select its own pods");
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> String {
        faults(&Rendering::parse(text).unwrap()).join("\n")
    }

    #[test]
    fn an_object_is_there_once_and_has_its_place() {
        let object = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: n}}";
        let twice = told(&format!("{object}\n---\n{object}"));
        assert!(twice.contains("ConfigMap a is there twice"), "{twice}");
        let lost = told("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}");
        assert!(
            lost.contains("ConfigMap a is in the namespace \"\""),
            "{lost}"
        );
        assert!(
            lost.contains("there is no DaemonSet headcni-daemon"),
            "{lost}"
        );
    }

    #[test]
    fn a_daemon_that_can_be_evicted_is_found() {
        let text = "{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: headcni-daemon, namespace: n}}";
        let told = told(text);
        assert!(
            told.contains("DaemonSet headcni-daemon can be evicted"),
            "{told}"
        );
        assert!(told.contains("does not tolerate everything"), "{told}");
    }
}
