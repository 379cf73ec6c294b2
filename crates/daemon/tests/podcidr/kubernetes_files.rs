//! Discovery by files of kubeadm, the kubelet and k3s.

use node_core::node_name;
use rstest::rstest;

use crate::fixture::{PodCidrNode, file, nets, skipped};

#[rstest]
#[case(
    "kubelet-standalone",
    "10.244.7.0/24",
    "10.244.7.0/24",
    "/var/lib/kubelet/config.yaml"
)]
#[case(
    "kubeadm-v1beta3",
    "10.245.3.0/24",
    "10.245.0.0/16",
    "/etc/kubernetes/kubeadm-config.yaml"
)]
#[case(
    "kubeadm-v1beta4",
    "10.246.3.0/24,fd00:246:0:3::/64",
    "10.246.0.0/16,fd00:246::/56",
    "/etc/kubernetes/kubeadm-config.yaml"
)]
#[case(
    "k3s-node",
    "10.42.9.0/24,fd00:42:0:9::/64",
    "10.42.0.0/16,fd00:42:0:9::/64",
    "/var/lib/rancher/k3s/agent/etc/node-worker-1.yaml"
)]
#[case(
    "k3s-drop-ins",
    "10.42.2.0/24",
    "10.42.0.0/16",
    "/var/lib/rancher/k3s/agent/etc/kubelet.conf.d/50-site.conf"
)]
#[case(
    "k3s-arguments",
    "10.42.5.0/24",
    "10.42.0.0/16",
    "/etc/rancher/k3s/config.yaml"
)]
fn a_file_has_the_pod_cidr(
    #[case] fixture: &str,
    #[case] local: &str,
    #[case] base: &str,
    #[case] path: &str,
) {
    let (found_local, found_base, source) = PodCidrNode::of(fixture).found();
    assert_eq!(found_local, local);
    assert_eq!(found_base, base);
    assert_eq!(source, file(path));
}

/// On these nodes files have the cluster CIDR, but only the API has the pod CIDR.
#[rstest]
#[case(
    "kubeadm-control-plane",
    "/etc/kubernetes/manifests/kube-controller-manager.yaml",
    "no podCIDR; --cluster-cidr is the whole cluster's: 10.244.0.0/16",
    "10.244.237.0/24"
)]
#[case(
    "kubeadm-pod-subnet",
    "/etc/kubernetes/kubeadm-config.yaml",
    "no podCIDR; podSubnet is the whole cluster's: 10.247.0.0/16,fd00:247::/56",
    "10.247.237.0/24,fd00:247:0:ed::/64"
)]
#[case(
    "kubeadm-config-map",
    "/etc/kubernetes/kubeadm-config.yaml",
    "no podCIDR; podSubnet is the whole cluster's: 10.248.0.0/16",
    "10.248.237.0/24"
)]
#[case(
    "k3s-server",
    "/etc/rancher/k3s/config.yaml",
    "no podCIDR; cluster-cidr is the whole cluster's: 10.42.0.0/16,fd00:42::/56",
    "10.42.237.0/24,fd00:42:0:ed::/64"
)]
fn a_cluster_cidr_is_not_taken_for_the_pod_cidr(
    #[case] fixture: &str,
    #[case] path: &str,
    #[case] why: &str,
    #[case] guess: &str,
) {
    let mut fixture = PodCidrNode::of(fixture);
    let discovery = fixture.discover();
    assert_eq!(skipped(&discovery, &file(path)), why);
    let error = discovery.outcome.unwrap_err().to_string();
    assert!(
        error.contains("the PodCIDR of node worker-1 is not known"),
        "{error}"
    );

    fixture.network.pod_cidr.allow_guess = true;
    assert_eq!(fixture.found().0, guess);
}

#[test]
fn the_cluster_cidr_is_found_beside_a_configured_pod_cidr() {
    let mut fixture = PodCidrNode::of("kubeadm-control-plane");
    fixture.network.pod_cidr.node_local = nets("10.244.3.0/24");
    let networks = fixture.discover().outcome.unwrap();
    assert_eq!(networks.base, nets("10.244.0.0/16").0);
    assert_eq!(
        networks.base_source,
        Some(file(
            "/etc/kubernetes/manifests/kube-controller-manager.yaml"
        ))
    );
}

#[test]
fn a_kubeadm_worker_has_no_file_with_a_pod_cidr() {
    let discovery = PodCidrNode::of("kubeadm-worker").discover();
    let kubelet = file("/var/lib/kubelet/config.yaml");
    assert_eq!(skipped(&discovery, &kubelet), "no podCIDR");
    assert!(discovery.outcome.is_err());
}

#[test]
fn a_file_of_another_node_is_not_read() {
    let mut fixture = PodCidrNode::of("k3s-node");
    fixture.node = node_name::find(Some("worker-2"), None).unwrap();
    assert_eq!(fixture.found().0, "10.42.10.0/24");
    fixture.node = node_name::find(Some("worker-3"), None).unwrap();
    let kubelet = "/var/lib/rancher/k3s/agent/etc/kubelet.config";
    assert_eq!(fixture.found().2, file(kubelet));
    assert_eq!(fixture.found().0, "10.42.77.0/24");
}

#[test]
fn kubeconfigs_have_no_cidr_and_are_never_printed() {
    for fixture in ["kubeadm-control-plane", "k3s-server"] {
        let discovery = PodCidrNode::of(fixture).discover();
        let text = format!("{discovery}\n{discovery:?}");
        for secret in ["Zm9y", "192.0.2.10", "127.0.0.1", "kubernetes-admin"] {
            assert!(!text.contains(secret), "{secret} is in {text}");
        }
    }
    let discovery = PodCidrNode::of("kubeadm-control-plane").discover();
    let admin = file("/etc/kubernetes/admin.conf");
    assert_eq!(skipped(&discovery, &admin), "no podCIDR");
}
