//! Pods that Kubernetes would refuse, or that could not start.

use std::collections::BTreeSet;
use std::path::Path;

use lab::tools::workspace_dir;
use serde_json::Value;

use super::object::{Rendering, containers, list};
use crate::dist;

/// Programs of the image beside ours and the scripts in `image/bin`.
const OTHERS: [&str; 2] = ["test", "tailscaled"];

/// What is wrong with them.
pub(super) fn faults(rendering: &Rendering) -> Vec<String> {
    let mut faults = Vec::new();
    for object in &rendering.objects {
        let Some(pod) = object.pod_spec() else {
            continue;
        };
        let found = volume_faults(pod).into_iter().chain(program_faults(pod));
        faults.extend(found.map(|fault| format!("{}: {fault}", object.title())));
    }
    faults
}

/// What is mounted has to be there, once; what is there should be mounted.
fn volume_faults(pod: &Value) -> Vec<String> {
    let name = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
    let mut faults = Vec::new();
    let mut volumes = BTreeSet::new();
    for volume in list(&pod["volumes"]) {
        if !volumes.insert(name(volume)) {
            faults.push(format!("the volume {} is there twice", name(volume)));
        }
    }
    let mut used = BTreeSet::new();
    for container in containers(pod) {
        let mut paths = BTreeSet::new();
        for mount in list(&container["volumeMounts"]) {
            used.insert(name(mount));
            let path = mount["mountPath"].as_str().unwrap_or_default();
            if !path.starts_with('/') || !paths.insert(path) {
                faults.push(format!(
                    "{}: {path:?} is no path, or mounted twice",
                    name(container)
                ));
            }
        }
    }
    let missing = used.difference(&volumes);
    faults.extend(missing.map(|name| format!("the volume {name} is missing")));
    let idle = volumes.difference(&used);
    faults.extend(idle.map(|name| format!("the volume {name} is mounted nowhere")));
    faults
}

/// Each container has an image, and those of ours a program that is in it.
fn program_faults(pod: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    for container in containers(pod) {
        let name = container["name"].as_str().unwrap_or_default();
        if container["image"].as_str().is_none_or(str::is_empty) {
            faults.push(format!("{name} has no image"));
        }
        let mut programs = vec![&container["command"][0]];
        for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
            programs.push(&container[probe]["exec"]["command"][0]);
        }
        for program in programs.into_iter().filter_map(Value::as_str) {
            if !is_in_image(program, &workspace_dir()) {
                faults.push(format!("{name} runs {program}, which is not in the image"));
            }
        }
    }
    faults
}

fn is_in_image(program: &str, workspace: &Path) -> bool {
    OTHERS.contains(&program)
        || dist::programs().any(|ours| ours.bin == program)
        || workspace.join("image/bin").join(program).is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(pod: &str) -> String {
        let text = format!("kind: Pod\nmetadata: {{name: a}}\nspec: {pod}\n");
        faults(&Rendering::parse(&text).unwrap()).join("\n")
    }

    #[test]
    fn what_is_mounted_has_to_be_there() {
        let container = "{name: c, image: i, volumeMounts: [{name: x, mountPath: /x}]}";
        let missing = told(&format!("{{containers: [{container}]}}"));
        assert_eq!(missing, "Pod a: the volume x is missing");
        let both = format!("{{containers: [{container}], volumes: [{{name: x}}, {{name: idle}}]}}");
        assert_eq!(told(&both), "Pod a: the volume idle is mounted nowhere");
    }

    #[test]
    fn a_program_has_to_be_in_the_image() {
        let told = |program: &str| {
            told(&format!(
                "{{containers: [{{name: c, image: i, command: [{program}]}}]}}"
            ))
        };
        assert_eq!(told("headcni-install"), "");
        assert_eq!(
            told("kubectl"),
            "Pod a: c runs kubectl, which is not in the image"
        );
    }
}
