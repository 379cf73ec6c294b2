//! Precedence and validation of pod CIDR sources.

use node_core::CidrSource;
use node_core::{KubeNodes, NodeFacts};
use node_podcidr::SourceResult;
use rstest::rstest;

use crate::fixture::{PodCidrNode, file, nets, result, skipped};

const KUBELET: &str = "/var/lib/kubelet/config.yaml";

/// A node whose sources all differ.
fn full() -> PodCidrNode {
    let mut fixture = PodCidrNode::with(&[
        (KUBELET, "podCIDR: 10.244.4.0/24"),
        (
            "/etc/kubernetes/kubeadm-config.yaml",
            "kubeletExtraArgs: {pod-cidr: 10.244.5.0/24}",
        ),
    ]);
    let keys = &mut fixture.network.pod_cidr;
    keys.nodes
        .insert("worker-1".to_owned(), nets("10.244.1.0/24"));
    keys.nodes
        .insert("worker-9".to_owned(), nets("10.244.9.0/24"));
    keys.node_local = nets("10.244.2.0/24");
    keys.base = nets("10.244.0.0/16");
    keys.allow_guess = true;
    fixture.variable = Some("10.244.3.0/24".to_owned());
    fixture
}

#[test]
fn sources_take_precedence_in_order() {
    let mut fixture = full();
    let (local, base, source) = fixture.found();
    assert_eq!((&*local, &*base), ("10.244.1.0/24", "10.244.0.0/16"));
    assert_eq!(source, CidrSource::ForNode(fixture.node.clone()));

    fixture.network.pod_cidr.nodes.remove("worker-1");
    let found = fixture.found();
    assert_eq!(
        (&*found.0, found.2),
        ("10.244.2.0/24", CidrSource::NodeLocal)
    );

    fixture.network.pod_cidr.node_local = nets("");
    let found = fixture.found();
    assert_eq!(
        (&*found.0, found.2),
        ("10.244.3.0/24", CidrSource::Variable)
    );

    for empty in [Some(String::new()), Some(" ".to_owned()), None] {
        fixture.variable = empty;
        let found = fixture.found();
        assert_eq!((&*found.0, found.2), ("10.244.4.0/24", file(KUBELET)));
    }

    std::fs::remove_file(fixture.root().join(&KUBELET[1..])).unwrap();
    assert_eq!(fixture.found().0, "10.244.5.0/24");

    let kubeadm = "etc/kubernetes/kubeadm-config.yaml";
    std::fs::remove_file(fixture.root().join(kubeadm)).unwrap();
    fixture.kubernetes = assigned("10.244.6.0/24");
    let found = fixture.found();
    assert_eq!(
        (&*found.0, found.2),
        ("10.244.6.0/24", CidrSource::NodeObject)
    );

    fixture.kubernetes = KubeNodes::default();
    let found = fixture.found();
    assert_eq!((&*found.0, found.2), ("10.244.237.0/24", CidrSource::Hash));

    fixture.network.pod_cidr.base = nets("");
    let found = fixture.found();
    assert_eq!((&*found.0, &*found.1), ("10.244.0.0/24", "10.244.0.0/24"));
    assert_eq!(found.2, CidrSource::Default);
}

/// The API's answer for this node.
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
fn the_answer_of_kubernetes_is_awaited_before_guessing() {
    let mut fixture = PodCidrNode::empty();
    fixture.network.pod_cidr.base = nets("10.244.0.0/16");
    fixture.kubernetes.is_enabled = true;
    let refused = |fixture: &PodCidrNode| fixture.discover().outcome.unwrap_err().to_string();
    for may_guess in [false, true] {
        fixture.network.pod_cidr.allow_guess = may_guess;
        assert!(refused(&fixture).contains("it has not answered yet"));
    }
    // It has answered without a pod CIDR: a guess is allowed.
    for nothing in [assigned(""), no_node()] {
        fixture.kubernetes = nothing;
        fixture.network.pod_cidr.allow_guess = true;
        assert_eq!(fixture.found().2, CidrSource::Hash);
        fixture.network.pod_cidr.allow_guess = false;
        let output = refused(&fixture);
        assert!(
            output.contains("awaited from the Kubernetes API"),
            "{output}"
        );
    }
    fixture.kubernetes = assigned("10.9.0.0/24");
    let output = refused(&fixture);
    assert!(output.contains("Node.spec.podCIDRs"), "{output}");
    // An explicit source does not wait.
    fixture.kubernetes = KubeNodes::default();
    fixture.kubernetes.is_enabled = true;
    fixture.network.pod_cidr.node_local = nets("10.244.2.0/24");
    assert_eq!(fixture.found().0, "10.244.2.0/24");
}

fn no_node() -> KubeNodes {
    KubeNodes {
        is_enabled: true,
        nodes: Some(std::collections::BTreeMap::new()),
    }
}

#[test]
fn node_names_in_the_configuration_are_case_insensitive() {
    let mut fixture = PodCidrNode::empty();
    let nodes = &mut fixture.network.pod_cidr.nodes;
    nodes.insert("Worker-1".to_owned(), nets("10.244.1.0/24"));
    assert_eq!(fixture.found().0, "10.244.1.0/24");
}

#[test]
fn sources_below_the_first_match_are_not_read() {
    let discovery = full().discover();
    let below: Vec<_> = discovery.sources[1..].iter().collect();
    assert!(below.len() > 12);
    for sources in below {
        assert_eq!(
            sources.result,
            SourceResult::NotReached,
            "{}",
            sources.source
        );
    }
}

#[test]
fn a_guess_must_be_allowed() {
    let mut fixture = PodCidrNode::empty();
    fixture.network.pod_cidr.base = nets("10.244.0.0/16");
    let discovery = fixture.discover();
    let why = skipped(&discovery, &CidrSource::Hash);
    assert!(why.starts_with("it would be 10.244.237.0/24, but"), "{why}");
    assert!(matches!(
        result(&discovery, &CidrSource::Default),
        SourceResult::Skipped(_)
    ));
    assert!(discovery.outcome.is_err());
}

#[test]
fn the_error_lists_the_sources_and_remedies() {
    let mut fixture = PodCidrNode::of("kubeadm-control-plane");
    let nodes = &mut fixture.network.pod_cidr.nodes;
    nodes.insert("edge-1".to_owned(), nets("10.244.1.0/24"));
    let error = fixture.error();
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

/// An explicit value is valid or an error, whatever other sources have.
#[rstest]
#[case("10.244.1.0", "not a CIDR such as")]
#[case("10.244.1.7/24", "did you mean 10.244.1.0/24?")]
#[case(",", "names no network")]
#[case("10.244.1.0/24,10.244.2.0/24", "of one IP family")]
#[case("127.0.0.0/24", "is loopback")]
#[case("10.244.1.0/31", "too small")]
#[case(
    "10.1.0.0/24",
    "not in the cluster's network 10.244.0.0/16 (from network.podCIDR.base)"
)]
fn an_invalid_variable_is_an_error(#[case] text: &str, #[case] problem: &str) {
    let mut fixture = full();
    fixture.network.pod_cidr.nodes.clear();
    fixture.network.pod_cidr.node_local = nets("");
    fixture.variable = Some(text.to_owned());
    let error = fixture.error();
    assert!(error.starts_with("NODE_POD_CIDR: "), "{error}");
    assert!(error.contains(problem), "{error}");
    let discovery = fixture.discover();
    let refused = result(&discovery, &CidrSource::Variable);
    assert!(matches!(refused, SourceResult::Rejected(_)), "{refused:?}");
    assert_eq!(
        *result(&discovery, &file(KUBELET)),
        SourceResult::NotReached
    );
}

#[rstest]
#[case("10.244.1.0/24,10.244.2.0/24", "of one IP family")]
#[case("10.1.0.0/24", "not in the cluster's network")]
#[case("10.244.96.0/24", "overlaps network.serviceCIDR 10.244.96.0/20")]
#[case("10.244.1.0/24,fd00:1::/64", "network.enableIPv6 is false")]
fn an_invalid_configuration_is_an_error(#[case] text: &str, #[case] problem: &str) {
    let mut fixture = full();
    let network = &mut fixture.network;
    network.service_cidr = nets("10.244.96.0/20");
    network.enable_ipv6 = Some(false);
    // Otherwise the service CIDR would be refused first.
    network.pod_cidr.base = nets("10.244.0.0/18");
    if text.contains("96") {
        network.pod_cidr.base = nets("");
    }
    for name in ["worker-1", "nodeLocal"] {
        if name == "nodeLocal" {
            fixture.network.pod_cidr.nodes.clear();
            fixture.network.pod_cidr.node_local = nets(text);
        } else {
            let nodes = &mut fixture.network.pod_cidr.nodes;
            nodes.insert(name.to_owned(), nets(text));
        }
        let error = fixture.error();
        assert!(error.starts_with("network.podCIDR.node"), "{error}");
        assert!(error.contains(name) && error.contains(problem), "{error}");
    }
}

#[rstest]
#[case("10.244.0.0/16,10.245.0.0/16", "of one IP family")]
#[case("224.0.0.0/8", "is multicast")]
#[case("240.0.0.0/8", "240.0.0.0/4, which is reserved")]
#[case("10.0.0.0/8", "overlaps network.serviceCIDR 10.96.0.0/12")]
fn an_invalid_cluster_cidr_is_an_error(#[case] base: &str, #[case] problem: &str) {
    let mut fixture = full();
    fixture.network.pod_cidr.base = nets(base);
    fixture.network.service_cidr = nets("10.96.0.0/12");
    let error = fixture.error();
    assert!(error.starts_with("network.podCIDR.base: "), "{error}");
    assert!(error.contains(problem), "{error}");
    let discovery = fixture.discover();
    for sources in &discovery.sources {
        assert_eq!(
            sources.result,
            SourceResult::NotReached,
            "{}",
            sources.source
        );
    }
}

#[test]
fn an_explicit_pod_cidr_must_be_in_the_cluster_cidr_of_a_file() {
    let mut fixture = PodCidrNode::of("kubeadm-control-plane");
    fixture.network.pod_cidr.node_local = nets("10.1.3.0/24");
    assert_eq!(
        fixture.error(),
        "network.podCIDR.nodeLocal: 10.1.3.0/24 is not in the cluster's network 10.244.0.0/16 \
         (from /etc/kubernetes/manifests/kube-controller-manager.yaml)"
    );
    fixture.network.pod_cidr.base = nets("10.1.0.0/16");
    assert_eq!(fixture.found().1, "10.1.0.0/16");
}

/// A file may be of another cluster: an impossible value is skipped with a note.
#[rstest]
#[case("podCIDR: 10.244.1.0", "not a CIDR")]
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
fn an_impossible_file_is_skipped(#[case] text: &str, #[case] problem: &str) {
    for base in ["the configuration", "a file"] {
        let mut fixture = PodCidrNode::with(&[
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
            fixture.network.pod_cidr.base = nets("10.244.0.0/16");
        }
        assert_eq!(fixture.found().0, "10.244.5.0/24", "base in {base}");
        let discovery = fixture.discover();
        let why = skipped(&discovery, &file(KUBELET));
        assert!(why.contains(problem), "{why}");
    }
}

#[rstest]
#[case("cluster-cidr: 10.96.0.0/16", "overlaps network.serviceCIDR")]
#[case("cluster-cidr: 127.0.0.0/8", "is loopback")]
#[case("cluster-cidr: [10.1.0.0/16, 10.2.0.0/16]", "of one IP family")]
#[case("cluster-cidr: pods", "not a CIDR")]
fn a_file_with_an_impossible_cluster_cidr_is_skipped(#[case] text: &str, #[case] problem: &str) {
    let k3s = "/etc/rancher/k3s/config.yaml";
    let mut fixture = PodCidrNode::with(&[
        (k3s, text),
        (
            KUBELET,
            "podCIDR: 10.244.1.0/24\nclusterCIDR: 10.244.0.0/16",
        ),
    ]);
    fixture.network.service_cidr = nets("10.96.0.0/12");
    assert_eq!(fixture.found().1, "10.244.0.0/16");
    let discovery = fixture.discover();
    let why = skipped(&discovery, &file(k3s));
    assert!(why.contains(problem), "{why}");
}

/// A guess does not override a file of this cluster.
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
    #[case] problem: &str,
) {
    let mut fixture = PodCidrNode::with(&[(KUBELET, text)]);
    fixture.network.service_cidr = nets("10.96.0.0/12");
    fixture.network.enable_ipv6 = enable_ipv6;
    fixture.network.pod_cidr.allow_guess = true;
    let error = fixture.error();
    assert!(
        error.starts_with(KUBELET) && error.contains(problem),
        "{error}"
    );
}

#[test]
fn a_guess_is_validated() {
    let mut fixture = PodCidrNode::empty();
    fixture.network.pod_cidr.allow_guess = true;
    fixture.network.service_cidr = nets("10.244.0.0/20");
    let error = fixture.error();
    assert!(error.contains("a guess without any input"), "{error}");

    fixture.network.service_cidr = nets("");
    fixture.network.enable_ipv6 = Some(true);
    fixture.network.pod_cidr.base = nets("10.244.0.0/16");
    let error = fixture.error();
    assert!(error.contains("has no IPv6 network"), "{error}");

    fixture.network.enable_ipv6 = None;
    fixture.network.pod_cidr.base = nets("10.244.0.0/26");
    let error = fixture.error();
    assert!(error.contains("perNode /24 does not fit"), "{error}");
}

#[test]
fn without_a_cluster_cidr_the_pod_cidr_is_used() {
    let mut fixture = PodCidrNode::empty();
    fixture.network.pod_cidr.node_local = nets("fd00:1::/64,10.244.1.0/24");
    let networks = fixture.discover().outcome.unwrap();
    assert_eq!(networks.base, networks.local);
    assert_eq!(networks.base_source, None);

    fixture.network.pod_cidr.base = nets("10.244.0.0/16");
    assert_eq!(fixture.found().1, "fd00:1::/64,10.244.0.0/16");
    let warnings = fixture.discover().warnings;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("IPv6 network is not known"));
}

#[test]
fn the_explanation_has_a_line_for_each_source() {
    let mut fixture = PodCidrNode::of("kubelet-standalone");
    fixture.network.pod_cidr.base = nets("10.244.0.0/16");
    assert_eq!(
        fixture.discover().to_string(),
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
   a guess from the node's name: not reached
   a guess without any input: not reached
"
    );
}

#[test]
fn the_explanation_of_a_failure_ends_with_the_error() {
    let fixture = PodCidrNode::empty();
    let text = fixture.discover().to_string();
    assert!(text.starts_with("node worker-1: not known\n"), "{text}");
    assert!(
        text.ends_with(&format!("error: {}\n", fixture.error())),
        "{text}"
    );
    let mut fixture = full();
    fixture.variable = Some("x".to_owned());
    fixture.network.pod_cidr.nodes.clear();
    fixture.network.pod_cidr.node_local = nets("");
    let text = fixture.discover().to_string();
    assert!(text.contains("\n!! NODE_POD_CIDR: not a CIDR"), "{text}");
}
