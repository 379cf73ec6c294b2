//! Secrets stand in Secrets, and nowhere else: not in arguments, not in variables, not in a `ConfigMap`.

use super::object::{Rendering, containers, list};

/// What every secret in our sets of values begins with.
const CANARY: &str = "canary-";
/// Variables whose value would be a secret.
const VARIABLES: [&str; 3] = [
    "HEADCNID_HEADSCALE_API_KEY",
    "HEADCNID_HEADSCALE_PRE_AUTH_KEY",
    "TS_AUTHKEY",
];

/// What is wrong with them.
pub(super) fn faults(rendering: &Rendering) -> Vec<String> {
    let mut faults = Vec::new();
    for object in &rendering.objects {
        if object.value.to_string().contains(CANARY) {
            faults.push(format!("{} shows a secret", object.title()));
        }
        let Some(pod) = object.pod_spec() else {
            continue;
        };
        let variables = containers(pod).flat_map(|container| list(&container["env"]));
        for name in variables.filter_map(|variable| variable["name"].as_str()) {
            if VARIABLES.contains(&name) {
                faults.push(format!("{} has a secret in {name}", object.title()));
            }
        }
        for volume in list(&pod["volumes"]).filter(|volume| !volume["secret"].is_null()) {
            if volume["secret"]["defaultMode"] != 0o400 {
                faults.push(format!(
                    "{} has secrets that others may read",
                    object.title()
                ));
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Vec<String> {
        faults(&Rendering::parse(text).unwrap())
    }

    #[test]
    fn a_secret_in_clear_is_found() {
        let config_map = "kind: ConfigMap\nmetadata: {name: a}\ndata: {x: canary-1}";
        assert_eq!(told(config_map), ["ConfigMap a shows a secret"]);
        let variable =
            "kind: Pod\nmetadata: {name: a}\nspec: {containers: [{env: [{name: TS_AUTHKEY}]}]}";
        assert_eq!(told(variable), ["Pod a has a secret in TS_AUTHKEY"]);
    }

    #[test]
    fn files_with_secrets_are_for_root_alone() {
        let pod = |mode: &str| {
            format!(
                "kind: Pod\nmetadata: {{name: a}}\nspec: {{volumes: [{{secret: {{defaultMode: {mode}}}}}]}}"
            )
        };
        assert!(told(&pod("256")).is_empty());
        assert_eq!(told(&pod("420")).len(), 1);
    }
}
