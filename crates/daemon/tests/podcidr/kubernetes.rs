//! What is found out by the files of kubeadm, the kubelet and k3s.

use node_core::node_name;
use rstest::rstest;

use crate::scene::{Scene, file, nets, passed};

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
fn a_file_says_the_nodes_networks(
    #[case] fixture: &str,
    #[case] local: &str,
    #[case] base: &str,
    #[case] path: &str,
) {
    let (found_local, found_base, source) = Scene::of(fixture).found();
    assert_eq!(found_local, local);
    assert_eq!(found_base, base);
    assert_eq!(source, file(path));
}

/// On these nodes files know the cluster's networks, but only the API knows the node's.
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
fn the_clusters_networks_are_not_the_nodes(
    #[case] fixture: &str,
    #[case] path: &str,
    #[case] why: &str,
    #[case] guess: &str,
) {
    let mut scene = Scene::of(fixture);
    let discovery = scene.discover();
    assert_eq!(passed(&discovery, &file(path)), why);
    let error = discovery.outcome.unwrap_err().to_string();
    assert!(
        error.contains("the PodCIDR of node worker-1 is not known"),
        "{error}"
    );

    scene.network.pod_cidr.allow_guess = true;
    assert_eq!(scene.found().0, guess);
}

#[test]
fn the_clusters_networks_are_found_though_the_configuration_says_the_nodes() {
    let mut scene = Scene::of("kubeadm-control-plane");
    scene.network.pod_cidr.node_local = nets("10.244.3.0/24");
    let networks = scene.discover().outcome.unwrap();
    assert_eq!(networks.base, nets("10.244.0.0/16").0);
    assert_eq!(
        networks.base_source,
        Some(file(
            "/etc/kubernetes/manifests/kube-controller-manager.yaml"
        ))
    );
}

#[test]
fn a_worker_of_kubeadm_has_no_file_that_knows() {
    let discovery = Scene::of("kubeadm-worker").discover();
    let kubelet = file("/var/lib/kubelet/config.yaml");
    assert_eq!(passed(&discovery, &kubelet), "no podCIDR");
    assert!(discovery.outcome.is_err());
}

#[test]
fn another_nodes_file_is_not_read() {
    let mut scene = Scene::of("k3s-node");
    scene.node = node_name::find(Some("worker-2"), None).unwrap();
    assert_eq!(scene.found().0, "10.42.10.0/24");
    scene.node = node_name::find(Some("worker-3"), None).unwrap();
    let kubelet = "/var/lib/rancher/k3s/agent/etc/kubelet.config";
    assert_eq!(scene.found().2, file(kubelet));
    assert_eq!(scene.found().0, "10.42.77.0/24");
}

#[test]
fn kubeconfigs_say_nothing_and_nothing_of_them_is_shown() {
    for fixture in ["kubeadm-control-plane", "k3s-server"] {
        let discovery = Scene::of(fixture).discover();
        let text = format!("{discovery}\n{discovery:?}");
        for secret in ["Zm9y", "192.0.2.10", "127.0.0.1", "kubernetes-admin"] {
            assert!(!text.contains(secret), "{secret} is in {text}");
        }
    }
    let discovery = Scene::of("kubeadm-control-plane").discover();
    let admin = file("/etc/kubernetes/admin.conf");
    assert_eq!(passed(&discovery, &admin), "no podCIDR");
}
