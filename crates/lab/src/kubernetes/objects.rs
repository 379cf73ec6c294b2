//! The API path of an object.

use anyhow::{Context, Result};
use serde_json::Value;

/// An object without a namespace is cluster-scoped.
pub(super) fn path_of(object: &Value) -> Result<String> {
    let text = |pointer: &str| {
        let found = object.pointer(pointer).and_then(Value::as_str);
        found.with_context(|| format!("an object without {pointer}: {object}"))
    };
    let (version, kind) = (text("/apiVersion")?, text("/kind")?);
    let name = text("/metadata/name")?;
    // The core group has no name.
    let root = if version.contains('/') { "apis" } else { "api" };
    let namespace = match text("/metadata/namespace") {
        Ok(namespace) => format!("namespaces/{namespace}/"),
        Err(_) => String::new(),
    };
    Ok(format!(
        "/{root}/{version}/{namespace}{}/{name}",
        plural(kind)
    ))
}

/// Paths have the plural of the kind in lower case.
fn plural(kind: &str) -> String {
    let kind = kind.to_lowercase();
    if kind == "endpoints" {
        return kind;
    }
    match kind.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{stem}ies"),
        _ if kind.ends_with('s') => format!("{kind}es"),
        _ => format!("{kind}s"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_path_follows_from_version_kind_and_name() {
        let object = |version: &str, kind: &str, metadata: Value| {
            let object = json!({ "apiVersion": version, "kind": kind, "metadata": metadata });
            path_of(&object).unwrap()
        };
        assert_eq!(
            object("v1", "Node", json!({ "name": "n1" })),
            "/api/v1/nodes/n1"
        );
        let namespaced = json!({ "name": "p", "namespace": "web" });
        assert_eq!(
            object("networking.k8s.io/v1", "NetworkPolicy", namespaced.clone()),
            "/apis/networking.k8s.io/v1/namespaces/web/networkpolicies/p"
        );
        assert_eq!(
            object("v1", "Endpoints", namespaced),
            "/api/v1/namespaces/web/endpoints/p"
        );
    }

    #[test]
    fn plurals_match_the_api() {
        assert_eq!(plural("DaemonSet"), "daemonsets");
        assert_eq!(plural("Ingress"), "ingresses");
        assert_eq!(plural("StorageClass"), "storageclasses");
        assert_eq!(plural("Gateway"), "gateways");
    }

    #[test]
    fn an_object_without_a_name_is_an_error() {
        let error = path_of(&json!({ "apiVersion": "v1", "kind": "Node" })).unwrap_err();
        assert!(error.to_string().contains("/metadata/name"), "{error}");
    }
}
