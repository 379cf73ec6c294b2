//! What the daemon may do by the Kubernetes API, and what hooks may: this and no more.

use std::collections::BTreeSet;

use serde_json::Value;

use super::object::{Rendering, list};

/// Where it stands; a test against a real API server takes it from there as well.
const DOCUMENT: &str = include_str!("../../../docs/kubernetes.md");

/// What the last ones on the nodes may do: take back what the daemon has said there.
const UNINSTALL: [(&str, &str); 2] = [("nodes", "patch"), ("nodes/status", "patch")];

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
        let allowed = match object.name() {
            "headcni-uninstall" => UNINSTALL
                .map(|(what, verb)| (what.to_owned(), verb.to_owned()))
                .into(),
            _ => documented(),
        };
        for (what, verb) in given.difference(&allowed) {
            faults.push(format!("{} may {verb} {what}", object.title()));
        }
        for (what, verb) in allowed.difference(&given) {
            faults.push(format!("{} may not {verb} {what}", object.title()));
        }
    }
    faults
}

/// What the documentation says is enough.
fn documented() -> BTreeSet<(String, String)> {
    let block = DOCUMENT.split("```yaml\n").nth(1);
    let block = block.and_then(|rest| rest.split("```").next());
    let role = serde_saphyr::from_str(block.unwrap_or_default());
    given(&role.unwrap_or_default())
}

/// Resources with their groups, and verbs.
fn given(role: &Value) -> BTreeSet<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut given = BTreeSet::new();
    for rule in list(&role["rules"]) {
        for group in list(&rule["apiGroups"]) {
            for resource in list(&rule["resources"]) {
                let what = format!("{}/{}", text(group), text(resource));
                let what = what.trim_start_matches('/');
                given.extend(list(&rule["verbs"]).map(|verb| (what.to_owned(), text(verb))));
            }
        }
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_and_less_is_told() {
        let text = "kind: ClusterRole\nmetadata: {name: a}\n\
                    rules: [{apiGroups: [''], resources: [secrets], verbs: [get]}]";
        let told = faults(&Rendering::parse(text).unwrap());
        assert_eq!(told[0], "ClusterRole a may get secrets");
        assert_eq!(told.len(), 1 + documented().len());
        let uninstall = text.replace("name: a", "name: headcni-uninstall");
        assert_eq!(
            faults(&Rendering::parse(&uninstall).unwrap()),
            [
                "ClusterRole headcni-uninstall may get secrets",
                "ClusterRole headcni-uninstall may not patch nodes",
                "ClusterRole headcni-uninstall may not patch nodes/status",
            ]
        );
        assert!(documented().contains(&("nodes/status".to_owned(), "patch".to_owned())));
    }
}
