//! A real Kubernetes, for tests that `make e2e` runs.
//!
//! Building it takes 13 minutes on two cores that do nothing else, and some five gigabytes of cache.

use super::{GoModule, Part};

/// The database of the API server.
pub const ETCD: GoModule = GoModule {
    name: "etcd",
    path: "go.etcd.io/etcd/server/v3",
    version: "v3.7.3",
    packages: &["."],
    stamps: &[],
    siblings: None,
    part: Part::Kubernetes,
};

/// Kubernetes itself: those first that every test needs, which are the control plane.
pub const KUBERNETES: GoModule = GoModule {
    name: "kubernetes",
    path: "k8s.io/kubernetes",
    version: "v1.37.1",
    packages: &[
        "cmd/kube-apiserver",
        "cmd/kube-controller-manager",
        "cmd/kube-scheduler",
        "cmd/kube-proxy",
        "cmd/kubelet",
    ],
    stamps: &[
        "k8s.io/component-base/version.gitVersion=v{version}",
        "k8s.io/component-base/version.gitMajor=1",
        "k8s.io/component-base/version.gitMinor=37",
        "k8s.io/client-go/pkg/version.gitVersion=v{version}",
    ],
    siblings: Some("v0.37.1"),
    part: Part::Kubernetes,
};

/// What runs the containers of a kubelet. Debian 12 has one of the generation before.
pub const CONTAINERD: GoModule = GoModule {
    name: "containerd",
    path: "github.com/containerd/containerd/v2",
    version: "v2.4.2",
    packages: &["cmd/containerd", "cmd/containerd-shim-runc-v2", "cmd/ctr"],
    stamps: &["github.com/containerd/containerd/v2/version.Version={version}"],
    siblings: None,
    part: Part::Kubernetes,
};

/// What installs charts.
pub const HELM: GoModule = GoModule {
    name: "helm",
    path: "helm.sh/helm/v3",
    version: "v3.18.6",
    packages: &["cmd/helm"],
    stamps: &[],
    siblings: None,
    part: Part::Kubernetes,
};

/// Every Go module of this part, those first that most tests need.
pub const MODULES: &[GoModule] = &[ETCD, KUBERNETES, CONTAINERD, HELM];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_version_agree() {
        let version = KUBERNETES.version.strip_prefix("v1.").unwrap();
        let siblings = KUBERNETES.siblings.unwrap().strip_prefix("v0.");
        assert_eq!(siblings, Some(version));
        let (minor, _) = version.split_once('.').unwrap();
        let stamp = format!("k8s.io/component-base/version.gitMinor={minor}");
        assert!(KUBERNETES.stamps.contains(&stamp.as_str()));
    }

    #[test]
    fn all_of_it_is_fetched_by_the_same_command() {
        assert!(MODULES.iter().all(|module| module.part == Part::Kubernetes));
    }
}
