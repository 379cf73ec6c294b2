//! What the daemon may do by the Kubernetes API: this and no more.

use std::collections::BTreeSet;

use serde_json::Value;

use super::object::{Rendering, list};

/// Resource and verb.
const ALLOWED: [(&str, &str); 13] = [
    ("events", "create"),
    ("events", "patch"),
    ("namespaces", "get"),
    ("namespaces", "list"),
    ("namespaces", "watch"),
    ("nodes", "get"),
    ("nodes", "list"),
    ("nodes", "patch"),
    ("nodes", "watch"),
    ("nodes/status", "patch"),
    ("pods", "get"),
    ("pods", "list"),
    ("pods", "watch"),
];

/// What is wrong with roles. Those of a namespace may look at a `DaemonSet` by its name.
pub(super) fn faults(rendering: &Rendering) -> Vec<String> {
    let mut faults = Vec::new();
    for object in &rendering.objects {
        let given = match object.kind() {
            "ClusterRole" => given(&object.value),
            "Role" => {
                let mut rules = list(&object.value["rules"]);
                let is_one = |rule: &Value| {
                    rule["resources"][0] == "daemonsets"
                        && rule["verbs"] == serde_json::json!(["get"])
                        && rule["resourceNames"]
                            .as_array()
                            .is_some_and(|names| names.len() == 1)
                };
                if !rules.all(is_one) {
                    faults.push(format!("{} may do too much", object.title()));
                }
                continue;
            }
            _ => continue,
        };
        let allowed: BTreeSet<_> = ALLOWED
            .map(|(what, verb)| (what.to_owned(), verb.to_owned()))
            .into();
        for (what, verb) in given.difference(&allowed) {
            faults.push(format!("{} may {verb} {what}", object.title()));
        }
        for (what, verb) in allowed.difference(&given) {
            faults.push(format!("{} may not {verb} {what}", object.title()));
        }
    }
    faults
}

fn given(role: &Value) -> BTreeSet<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut given = BTreeSet::new();
    for rule in list(&role["rules"]) {
        for resource in list(&rule["resources"]) {
            given.extend(list(&rule["verbs"]).map(|verb| (text(resource), text(verb))));
        }
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_and_less_is_told() {
        let text =
            "kind: ClusterRole\nmetadata: {name: a}\nrules: [{resources: [secrets], verbs: [get]}]";
        let told = faults(&Rendering::parse(text).unwrap());
        assert_eq!(told[0], "ClusterRole a may get secrets");
        assert_eq!(told.len(), 1 + ALLOWED.len());
    }
}
