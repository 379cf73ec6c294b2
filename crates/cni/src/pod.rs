//! Which pod a call is about, as Kubernetes runtimes say it in `CNI_ARGS`.

use serde::{Deserialize, Serialize};

use crate::CniArgs;

/// A pod as `CNI_ARGS` names it; runtimes other than Kubernetes' name none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    /// The namespace.
    pub namespace: String,
    /// The name within the namespace.
    pub name: String,
    /// What tells it from an earlier pod of the same name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The container that holds its namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
}

impl Pod {
    /// The pod that the arguments name, if they do.
    pub fn from_args(args: &CniArgs) -> Option<Self> {
        let value = |key| {
            args.get(key)
                .filter(|value| !value.is_empty())
                .map(str::to_owned)
        };
        Some(Self {
            namespace: value("K8S_POD_NAMESPACE")?,
            name: value("K8S_POD_NAME")?,
            uid: value("K8S_POD_UID"),
            sandbox: value("K8S_POD_INFRA_CONTAINER_ID"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_named_by_the_arguments_of_kubernetes_runtimes() {
        let args = CniArgs::parse(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=web;K8S_POD_NAME=web-0;\
             K8S_POD_INFRA_CONTAINER_ID=abc;K8S_POD_UID=1-2-3",
        );
        let pod = Pod::from_args(&args.unwrap()).unwrap();
        assert_eq!(
            (pod.namespace.as_str(), pod.name.as_str()),
            ("web", "web-0")
        );
        assert_eq!(
            (pod.uid.as_deref(), pod.sandbox.as_deref()),
            (Some("1-2-3"), Some("abc"))
        );
    }

    #[test]
    fn without_these_arguments_there_is_no_pod() {
        assert_eq!(Pod::from_args(&CniArgs::parse("").unwrap()), None);
        assert_eq!(
            Pod::from_args(&CniArgs::parse("K8S_POD_NAME=x").unwrap()),
            None
        );
    }
}
