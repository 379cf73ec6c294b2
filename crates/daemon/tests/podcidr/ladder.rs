//! Which source wins, and what is checked.

use node_core::CidrSource;
use node_core::{KubeNodes, NodeFacts};
use node_podcidr::Verdict;
use rstest::rstest;

use crate::scene::{Scene, file, nets, passed, verdict};

const KUBELET: &str = "/var/lib/kubelet/config.yaml";

/// A node of which every source says something else.
fn full() -> Scene {
    let mut scene = Scene::with(&[
        (KUBELET, "podCIDR: 10.244.4.0/24"),
        (
            "/etc/kubernetes/kubeadm-config.yaml",
            "kubeletExtraArgs: {pod-cidr: 10.244.5.0/24}",
        ),
    ]);
    let keys = &mut scene.network.pod_cidr;
    keys.nodes
        .insert("worker-1".to_owned(), nets("10.244.1.0/24"));
    keys.nodes
        .insert("worker-9".to_owned(), nets("10.244.9.0/24"));
    keys.node_local = nets("10.244.2.0/24");
    keys.base = nets("10.244.0.0/16");
    keys.allow_guess = true;
    scene.variable = Some("10.244.3.0/24".to_owned());
    scene
}

#[test]
fn sources_win_in_the_ladders_order() {
    let mut scene = full();
    let (local, base, source) = scene.found();
    assert_eq!((&*local, &*base), ("10.244.1.0/24", "10.244.0.0/16"));
    assert_eq!(source, CidrSource::ForNode(scene.node.clone()));

    scene.network.pod_cidr.nodes.remove("worker-1");
    let found = scene.found();
    assert_eq!(
        (&*found.0, found.2),
        ("10.244.2.0/24", CidrSource::NodeLocal)
    );

    scene.network.pod_cidr.node_local = nets("");
    let found = scene.found();
    assert_eq!(
        (&*found.0, found.2),
        ("10.244.3.0/24", CidrSource::Variable)
    );

    for empty in [Some(String::new()), Some(" ".to_owned()), None] {
        scene.variable = empty;
        let found = scene.found();
        assert_eq!((&*found.0, found.2), ("10.244.4.0/24", file(KUBELET)));
    }

    std::fs::remove_file(scene.root().join(&KUBELET[1..])).unwrap();
    assert_eq!(scene.found().0, "10.244.5.0/24");

    let kubeadm = "etc/kubernetes/kubeadm-config.yaml";
    std::fs::remove_file(scene.root().join(kubeadm)).unwrap();
    scene.kubernetes = assigned("10.244.6.0/24");
    let found = scene.found();
    assert_eq!(
        (&*found.0, found.2),
        ("10.244.6.0/24", CidrSource::NodeObject)
    );

    scene.kubernetes = KubeNodes::default();
    let found = scene.found();
    assert_eq!((&*found.0, found.2), ("10.244.237.0/24", CidrSource::Hash));

    scene.network.pod_cidr.base = nets("");
    let found = scene.found();
    assert_eq!((&*found.0, &*found.1), ("10.244.0.0/24", "10.244.0.0/24"));
    assert_eq!(found.2, CidrSource::Default);
}

/// What the API says about this node.
fn assigned(networks: &str) -> KubeNodes {
    let facts = NodeFacts {
        assigned: nets(networks).0,
        ..NodeFacts::default()
    };
    KubeNodes {
        is_enabled: true,
        nodes: Some([("worker-1".to_owned(), facts)].into()),
    }
}

#[test]
fn an_answer_of_kubernetes_is_awaited_and_not_guessed() {
    let mut scene = Scene::empty();
    scene.network.pod_cidr.base = nets("10.244.0.0/16");
    scene.kubernetes.is_enabled = true;
    let refused = |scene: &Scene| scene.discover().outcome.unwrap_err().to_string();
    for may_guess in [false, true] {
        scene.network.pod_cidr.allow_guess = may_guess;
        assert!(refused(&scene).contains("it has not answered yet"));
    }
    // It has answered, and knows nothing: whoever allows a guess gets one.
    for nothing in [assigned(""), no_node()] {
        scene.kubernetes = nothing;
        scene.network.pod_cidr.allow_guess = true;
        assert_eq!(scene.found().2, CidrSource::Hash);
        scene.network.pod_cidr.allow_guess = false;
        let said = refused(&scene);
        assert!(said.contains("awaited from the Kubernetes API"), "{said}");
    }
    scene.kubernetes = assigned("10.9.0.0/24");
    let said = refused(&scene);
    assert!(said.contains("Node.spec.podCIDRs"), "{said}");
    // Whoever says it otherwise is not held up.
    scene.kubernetes = KubeNodes::default();
    scene.kubernetes.is_enabled = true;
    scene.network.pod_cidr.node_local = nets("10.244.2.0/24");
    assert_eq!(scene.found().0, "10.244.2.0/24");
}

fn no_node() -> KubeNodes {
    KubeNodes {
        is_enabled: true,
        nodes: Some(std::collections::BTreeMap::new()),
    }
}

#[test]
fn the_name_of_a_node_in_the_configuration_may_have_capitals() {
    let mut scene = Scene::empty();
    let nodes = &mut scene.network.pod_cidr.nodes;
    nodes.insert("Worker-1".to_owned(), nets("10.244.1.0/24"));
    assert_eq!(scene.found().0, "10.244.1.0/24");
}

#[test]
fn below_the_winner_nothing_is_looked_at() {
    let discovery = full().discover();
    let below: Vec<_> = discovery.looked[1..].iter().collect();
    assert!(below.len() > 12);
    for looked in below {
        assert_eq!(looked.verdict, Verdict::NotReached, "{}", looked.source);
    }
}

#[test]
fn a_guess_needs_to_be_allowed() {
    let mut scene = Scene::empty();
    scene.network.pod_cidr.base = nets("10.244.0.0/16");
    let discovery = scene.discover();
    let why = passed(&discovery, &CidrSource::Hash);
    assert!(why.starts_with("it would be 10.244.237.0/24, but"), "{why}");
    assert!(matches!(
        verdict(&discovery, &CidrSource::Default),
        Verdict::Passed(_)
    ));
    assert!(discovery.outcome.is_err());
}

#[test]
fn the_error_says_what_was_looked_at_and_the_ways_out() {
    let mut scene = Scene::of("kubeadm-control-plane");
    let nodes = &mut scene.network.pod_cidr.nodes;
    nodes.insert("edge-1".to_owned(), nets("10.244.1.0/24"));
    let error = scene.error();
    for part in [
        "the PodCIDR of node worker-1 is not known",
        "network.podCIDR.nodes.worker-1 (not set; there are edge-1)",
        "network.podCIDR.nodeLocal, NODE_POD_CIDR (not set)",
        "/etc/rancher/k3s/k3s.yaml",
        "(no such file)",
        "/var/lib/kubelet/config.yaml, /etc/kubernetes/admin.conf",
        "(no podCIDR)",
        "--cluster-cidr is the whole cluster's: 10.244.0.0/16",
        "set network.podCIDR.nodes.worker-1 or network.podCIDR.nodeLocal or NODE_POD_CIDR",
        "network.podCIDR.allowGuess",
    ] {
        assert!(error.contains(part), "{part:?} is not in {error}");
    }
    assert!(!error.contains('\n'));
}

/// What people say is right or an error, whatever others know.
#[rstest]
#[case("10.244.1.0", "not a network of the form")]
#[case("10.244.1.7/24", "did you mean 10.244.1.0/24?")]
#[case(",", "names no network")]
#[case("10.244.1.0/24,10.244.2.0/24", "of one IP family")]
#[case("127.0.0.0/24", "is loopback")]
#[case("10.244.1.0/31", "too small")]
#[case(
    "10.1.0.0/24",
    "not in the cluster's network 10.244.0.0/16 (from network.podCIDR.base)"
)]
fn a_wrong_variable_is_an_error(#[case] text: &str, #[case] trouble: &str) {
    let mut scene = full();
    scene.network.pod_cidr.nodes.clear();
    scene.network.pod_cidr.node_local = nets("");
    scene.variable = Some(text.to_owned());
    let error = scene.error();
    assert!(error.starts_with("NODE_POD_CIDR: "), "{error}");
    assert!(error.contains(trouble), "{error}");
    let discovery = scene.discover();
    let refused = verdict(&discovery, &CidrSource::Variable);
    assert!(matches!(refused, Verdict::Refused(_)), "{refused:?}");
    assert_eq!(*verdict(&discovery, &file(KUBELET)), Verdict::NotReached);
}

#[rstest]
#[case("10.244.1.0/24,10.244.2.0/24", "of one IP family")]
#[case("10.1.0.0/24", "not in the cluster's network")]
#[case("10.244.96.0/24", "overlaps network.serviceCIDR 10.244.96.0/20")]
#[case("10.244.1.0/24,fd00:1::/64", "network.enableIPv6 is false")]
fn a_wrong_configuration_is_an_error(#[case] text: &str, #[case] trouble: &str) {
    let mut scene = full();
    let network = &mut scene.network;
    network.service_cidr = nets("10.244.96.0/20");
    network.enable_ipv6 = Some(false);
    // Else the services' network would be refused first.
    network.pod_cidr.base = nets("10.244.0.0/18");
    if text.contains("96") {
        network.pod_cidr.base = nets("");
    }
    for name in ["worker-1", "nodeLocal"] {
        if name == "nodeLocal" {
            scene.network.pod_cidr.nodes.clear();
            scene.network.pod_cidr.node_local = nets(text);
        } else {
            let nodes = &mut scene.network.pod_cidr.nodes;
            nodes.insert(name.to_owned(), nets(text));
        }
        let error = scene.error();
        assert!(error.starts_with("network.podCIDR.node"), "{error}");
        assert!(error.contains(name) && error.contains(trouble), "{error}");
    }
}

#[rstest]
#[case("10.244.0.0/16,10.245.0.0/16", "of one IP family")]
#[case("224.0.0.0/8", "for multicast")]
#[case("10.0.0.0/8", "overlaps network.serviceCIDR 10.96.0.0/12")]
fn a_wrong_base_is_an_error(#[case] base: &str, #[case] trouble: &str) {
    let mut scene = full();
    scene.network.pod_cidr.base = nets(base);
    scene.network.service_cidr = nets("10.96.0.0/12");
    let error = scene.error();
    assert!(error.starts_with("network.podCIDR.base: "), "{error}");
    assert!(error.contains(trouble), "{error}");
    let discovery = scene.discover();
    for looked in &discovery.looked {
        assert_eq!(looked.verdict, Verdict::NotReached, "{}", looked.source);
    }
}

#[test]
fn what_a_person_says_must_be_in_the_networks_that_a_file_knows() {
    let mut scene = Scene::of("kubeadm-control-plane");
    scene.network.pod_cidr.node_local = nets("10.1.3.0/24");
    assert_eq!(
        scene.error(),
        "network.podCIDR.nodeLocal: 10.1.3.0/24 is not in the cluster's network 10.244.0.0/16 \
         (from /etc/kubernetes/manifests/kube-controller-manager.yaml)"
    );
    scene.network.pod_cidr.base = nets("10.1.0.0/16");
    assert_eq!(scene.found().1, "10.1.0.0/16");
}

/// Files may be of another cluster: what can't be is passed with a note, and the next one is asked.
#[rstest]
#[case("podCIDR: 10.244.1.0", "not a network")]
#[case("podCIDR: 10.99.1.0/24", "not in the cluster's network 10.244.0.0/16")]
#[case("podCIDR: 10.244.0.0/16", "is the whole cluster's network")]
#[case("podCIDR: 10.0.0.0/8", "not in the cluster's network 10.244.0.0/16")]
#[case("podCIDR: 127.0.0.0/24", "is loopback")]
#[case("podCIDRs: [10.244.1.0/24, 10.244.2.0/24]", "of one IP family")]
#[case(
    "podCIDR: 10.244.1.0/24\npod-cidr: 10.244.2.0/24",
    "but pod-cidr is 10.244.2.0/24"
)]
#[case("{", "no YAML from line")]
fn a_file_that_is_wrong_is_passed(#[case] text: &str, #[case] trouble: &str) {
    for base in ["the configuration", "a file"] {
        let mut scene = Scene::with(&[
            (KUBELET, text),
            (
                "/etc/kubernetes/kubeadm-config.yaml",
                "kubeletExtraArgs: {pod-cidr: 10.244.5.0/24}",
            ),
            (
                "/etc/kubernetes/manifests/kube-controller-manager.yaml",
                "command: [--cluster-cidr, 10.244.0.0/16]",
            ),
        ]);
        if base == "the configuration" {
            scene.network.pod_cidr.base = nets("10.244.0.0/16");
        }
        assert_eq!(scene.found().0, "10.244.5.0/24", "base in {base}");
        let discovery = scene.discover();
        let why = passed(&discovery, &file(KUBELET));
        assert!(why.contains(trouble), "{why}");
    }
}

#[rstest]
#[case("cluster-cidr: 10.96.0.0/16", "overlaps network.serviceCIDR")]
#[case("cluster-cidr: 127.0.0.0/8", "is loopback")]
#[case("cluster-cidr: [10.1.0.0/16, 10.2.0.0/16]", "of one IP family")]
#[case("cluster-cidr: pods", "not a network")]
fn a_file_that_is_wrong_about_the_cluster_is_passed(#[case] text: &str, #[case] trouble: &str) {
    let k3s = "/etc/rancher/k3s/config.yaml";
    let mut scene = Scene::with(&[
        (k3s, text),
        (
            KUBELET,
            "podCIDR: 10.244.1.0/24\nclusterCIDR: 10.244.0.0/16",
        ),
    ]);
    scene.network.service_cidr = nets("10.96.0.0/12");
    assert_eq!(scene.found().1, "10.244.0.0/16");
    let discovery = scene.discover();
    let why = passed(&discovery, &file(k3s));
    assert!(why.contains(trouble), "{why}");
}

/// What a file knows of this cluster is not put aside for a guess.
#[rstest]
#[case("podCIDR: 10.96.1.0/24", None, "overlaps network.serviceCIDR")]
#[case("podCIDR: 10.244.1.0/24", Some(true), "has no IPv6 network")]
#[case(
    "podCIDR: '10.244.1.0/24,fd00::/64'",
    Some(false),
    "enableIPv6 is false"
)]
fn a_file_that_contradicts_the_configuration_is_an_error(
    #[case] text: &str,
    #[case] enable_ipv6: Option<bool>,
    #[case] trouble: &str,
) {
    let mut scene = Scene::with(&[(KUBELET, text)]);
    scene.network.service_cidr = nets("10.96.0.0/12");
    scene.network.enable_ipv6 = enable_ipv6;
    scene.network.pod_cidr.allow_guess = true;
    let error = scene.error();
    assert!(
        error.starts_with(KUBELET) && error.contains(trouble),
        "{error}"
    );
}

#[test]
fn a_guess_is_checked_too() {
    let mut scene = Scene::empty();
    scene.network.pod_cidr.allow_guess = true;
    scene.network.service_cidr = nets("10.244.0.0/20");
    let error = scene.error();
    assert!(error.contains("guess without any knowledge"), "{error}");

    scene.network.service_cidr = nets("");
    scene.network.enable_ipv6 = Some(true);
    scene.network.pod_cidr.base = nets("10.244.0.0/16");
    let error = scene.error();
    assert!(error.contains("has no IPv6 network"), "{error}");

    scene.network.enable_ipv6 = None;
    scene.network.pod_cidr.base = nets("10.244.0.0/26");
    let error = scene.error();
    assert!(error.contains("perNode /24 does not fit"), "{error}");
}

#[test]
fn the_cluster_has_the_nodes_network_where_its_own_is_not_known() {
    let mut scene = Scene::empty();
    scene.network.pod_cidr.node_local = nets("fd00:1::/64,10.244.1.0/24");
    let networks = scene.discover().outcome.unwrap();
    assert_eq!(networks.base, networks.local);
    assert_eq!(networks.base_source, None);

    scene.network.pod_cidr.base = nets("10.244.0.0/16");
    assert_eq!(scene.found().1, "fd00:1::/64,10.244.0.0/16");
    let warnings = scene.discover().warnings;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("IPv6 network is not known"));
}

#[test]
fn the_explanation_has_a_line_for_each_source() {
    let mut scene = Scene::of("kubelet-standalone");
    scene.network.pod_cidr.base = nets("10.244.0.0/16");
    assert_eq!(
        scene.discover().to_string(),
        "\
node worker-1: 10.244.7.0/24, from /var/lib/kubelet/config.yaml
cluster: 10.244.0.0/16, from network.podCIDR.base

   network.podCIDR.nodes.worker-1: not set
   network.podCIDR.nodeLocal: not set
   NODE_POD_CIDR: not set
   /var/lib/rancher/k3s/agent/etc/node-worker-1.yaml: no such file
   /etc/rancher/k3s/k3s.yaml: no such file
   /var/lib/rancher/k3s/agent/etc/kubelet.config: no such file
   /var/lib/rancher/k3s/agent/etc/kubelet.conf.d/*.conf: no such directory
   /etc/rancher/k3s/config.yaml.d/*.yaml: no such directory
   /etc/rancher/k3s/config.yaml: no such file
=> /var/lib/kubelet/config.yaml: podCIDR is 10.244.7.0/24
   /etc/kubernetes/kubeadm-config.yaml: not reached
   /etc/kubernetes/admin.conf: not reached
   /etc/kubernetes/manifests/kube-controller-manager.yaml: not reached
   /etc/kubernetes/manifests/kube-apiserver.yaml: not reached
   Node.spec.podCIDRs: not reached
   guess from the node's name: not reached
   guess without any knowledge: not reached
"
    );
}

#[test]
fn the_explanation_of_a_failure_ends_with_the_error() {
    let scene = Scene::empty();
    let text = scene.discover().to_string();
    assert!(text.starts_with("node worker-1: not known\n"), "{text}");
    assert!(
        text.ends_with(&format!("error: {}\n", scene.error())),
        "{text}"
    );
    let mut scene = full();
    scene.variable = Some("x".to_owned());
    scene.network.pod_cidr.nodes.clear();
    scene.network.pod_cidr.node_local = nets("");
    let text = scene.discover().to_string();
    assert!(text.contains("\n!! NODE_POD_CIDR: not a network"), "{text}");
}
