//! A real Kubernetes for `make e2e`.
//!
//! Its build takes 13 minutes on two idle cores and 5 GB of cache.

use super::{GoModule, Part};

pub const ETCD: GoModule = GoModule {
    name: "etcd",
    path: "go.etcd.io/etcd/server/v3",
    version: "v3.7.3",
    packages: &["."],
    stamps: &[],
    siblings: None,
    part: Part::Kubernetes,
};

/// The control plane first, which every test needs.
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

/// Debian 12 has containerd 1.
pub const CONTAINERD: GoModule = GoModule {
    name: "containerd",
    path: "github.com/containerd/containerd/v2",
    version: "v2.4.2",
    packages: &["cmd/containerd", "cmd/containerd-shim-runc-v2", "cmd/ctr"],
    stamps: &["github.com/containerd/containerd/v2/version.Version={version}"],
    siblings: None,
    part: Part::Kubernetes,
};

pub const HELM: GoModule = GoModule {
    name: "helm",
    path: "helm.sh/helm/v3",
    version: "v3.18.6",
    packages: &["cmd/helm"],
    stamps: &[],
    siblings: None,
    part: Part::Kubernetes,
};

/// The most needed first.
pub const MODULES: &[GoModule] = &[ETCD, KUBERNETES, CONTAINERD, HELM];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_of_kubernetes_and_its_staging_modules_agree() {
        let version = KUBERNETES.version.strip_prefix("v1.").unwrap();
        let siblings = KUBERNETES.siblings.unwrap().strip_prefix("v0.");
        assert_eq!(siblings, Some(version));
        let (minor, _) = version.split_once('.').unwrap();
        let stamp = format!("k8s.io/component-base/version.gitMinor={minor}");
        assert!(KUBERNETES.stamps.contains(&stamp.as_str()));
    }

    #[test]
    fn all_modules_belong_to_this_part() {
        assert!(MODULES.iter().all(|module| module.part == Part::Kubernetes));
    }
}
