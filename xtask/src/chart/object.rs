//! Kubernetes objects as they are rendered.

use anyhow::{Context, Result};
use serde_json::Value;

/// All objects that come of a set of values.
#[derive(Debug, Default)]
pub(super) struct Rendering {
    pub(super) objects: Vec<Object>,
}

/// One object.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) value: Value,
}

impl Rendering {
    /// Reads a text of several YAML documents; empty ones are left out.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(text).context("what was rendered is no YAML")?;
        let objects = documents.into_iter().filter(|value| !value.is_null());
        Ok(Self {
            objects: objects.map(|value| Object { value }).collect(),
        })
    }

    /// The object of this kind and name.
    pub(super) fn find(&self, kind: &str, name: &str) -> Option<&Object> {
        let is_it = |object: &&Object| object.kind() == kind && object.name() == name;
        self.objects.iter().find(is_it)
    }
}

impl Object {
    pub(super) fn kind(&self) -> &str {
        self.value["kind"].as_str().unwrap_or_default()
    }

    pub(super) fn name(&self) -> &str {
        self.value["metadata"]["name"].as_str().unwrap_or_default()
    }

    pub(super) fn namespace(&self) -> &str {
        self.value["metadata"]["namespace"]
            .as_str()
            .unwrap_or_default()
    }

    /// For messages.
    pub(super) fn title(&self) -> String {
        format!("{} {}", self.kind(), self.name())
    }

    /// What says how its pods are, if it has any.
    pub(super) fn pod_spec(&self) -> Option<&Value> {
        match self.kind() {
            "Pod" => Some(&self.value["spec"]),
            "DaemonSet" | "Deployment" | "Job" => Some(&self.value["spec"]["template"]["spec"]),
            _ => None,
        }
    }
}

/// All containers of a pod, those that run first too.
pub(super) fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers"]
        .into_iter()
        .flat_map(|key| list(&pod[key]))
}

/// The container of this name.
pub(super) fn container<'a>(pod: &'a Value, name: &str) -> Option<&'a Value> {
    containers(pod).find(|container| container["name"] == name)
}

/// The value of a variable of a container, if it is said literally.
pub(super) fn variable<'a>(container: &'a Value, name: &str) -> Option<&'a str> {
    let mut variables = list(&container["env"]);
    variables.find(|it| it["name"] == name)?["value"].as_str()
}

/// The elements of a list; nothing that is no list has any.
pub(super) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_without_contents_are_no_objects() {
        let text = "---\n# nothing\n---\nkind: Pod\nmetadata: {name: a}\n---\n";
        let rendering = Rendering::parse(text).unwrap();
        assert_eq!(rendering.objects.len(), 1);
        assert!(rendering.find("Pod", "a").is_some());
        assert!(rendering.find("Pod", "b").is_none());
    }
}
