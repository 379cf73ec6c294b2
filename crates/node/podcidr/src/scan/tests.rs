use rstest::rstest;

use super::*;

/// What a text says about the node and the cluster, as text; nothing is empty.
fn said(text: &str) -> (String, String) {
    let report = scan(text, Echo::Values);
    let text = |said: Said| match said.networks {
        Some((key, nets)) => format!("{key} {}", Networks(nets)),
        None => said.troubles.join("; "),
    };
    (text(report.node), text(report.cluster))
}

#[rstest]
#[case("podCIDR: 10.244.1.0/24", "podCIDR 10.244.1.0/24")]
#[case("podCIDR: \"10.244.1.0/24\"", "podCIDR 10.244.1.0/24")]
#[case("pod-cidr: '10.244.1.0/24' # ours", "pod-cidr 10.244.1.0/24")]
#[case("{\"podCIDR\": \"10.244.1.0/24\"}", "podCIDR 10.244.1.0/24")]
#[case("--pod-cidr=10.244.1.0/24", "--pod-cidr 10.244.1.0/24")]
#[case("--pod-cidr 10.244.1.0/24", "--pod-cidr 10.244.1.0/24")]
#[case(
    "kubelet --v=2 \\\n  --pod-cidr 10.244.1.0/24 \\\n  --x",
    "--pod-cidr 10.244.1.0/24"
)]
#[case("ARGS=\"--v=2 --pod-cidr=10.244.1.0/24\"", "--pod-cidr 10.244.1.0/24")]
#[case(
    "args: [\"--pod-cidr\", \"10.244.1.0/24\"]",
    "--pod-cidr 10.244.1.0/24"
)]
#[case("args:\n- --pod-cidr\n- 10.244.1.0/24\n", "--pod-cidr 10.244.1.0/24")]
#[case("a: 1\n---\npodCIDR: 10.244.1.0/24\n", "podCIDR 10.244.1.0/24")]
#[case("spec: {a: [{podCIDR: 10.244.1.0/24}]}", "podCIDR 10.244.1.0/24")]
#[case(
    "podCIDR: 10.244.1.0/24,fd00:1::/64",
    "podCIDR 10.244.1.0/24,fd00:1::/64"
)]
#[case(
    "podCIDRs: [10.244.1.0/24, 'fd00:1::/64']",
    "podCIDRs 10.244.1.0/24,fd00:1::/64"
)]
#[case(
    "podCIDR: 10.244.1.0/24\npodCIDRs: [10.244.1.0/24, 'fd00:1::/64']",
    "podCIDRs 10.244.1.0/24,fd00:1::/64"
)]
#[case(
    "podCIDRs: [10.244.1.0/24, 'fd00:1::/64']\npodCIDR: 10.244.1.0/24",
    "podCIDRs 10.244.1.0/24,fd00:1::/64"
)]
#[case("x: &a {podCIDR: 10.244.1.0/24}\ny: *a", "podCIDR 10.244.1.0/24")]
fn every_way_to_say_the_nodes_networks_is_read(#[case] text: &str, #[case] expected: &str) {
    assert_eq!(said(text), (expected.to_owned(), String::new()));
}

#[rstest]
#[case("--cluster-cidr=10.244.0.0/16", "--cluster-cidr 10.244.0.0/16")]
#[case("--cluster-cidr 10.244.0.0/16", "--cluster-cidr 10.244.0.0/16")]
#[case("--cluster-cidr='10.244.0.0/16'", "--cluster-cidr 10.244.0.0/16")]
#[case("cluster-cidr: 10.244.0.0/16", "cluster-cidr 10.244.0.0/16")]
#[case("clusterCIDR: 10.244.0.0/16", "clusterCIDR 10.244.0.0/16")]
#[case("networking: {podSubnet: 10.244.0.0/16}", "podSubnet 10.244.0.0/16")]
#[case(
    "controllerManager: {extraArgs: {cluster-cidr: 10.244.0.0/16}}",
    "cluster-cidr 10.244.0.0/16"
)]
#[case(
    "controllerManager:\n  extraArgs: [{name: cluster-cidr, value: 10.244.0.0/16}]",
    "cluster-cidr 10.244.0.0/16"
)]
#[case(
    "controllerManager:\n  extraArgs: [{value: 10.244.0.0/16, name: cluster-cidr}]",
    "cluster-cidr 10.244.0.0/16"
)]
#[case(
    "kube-controller-manager-arg: [v=1, cluster-cidr=10.244.0.0/16]",
    "--cluster-cidr 10.244.0.0/16"
)]
#[case(
    "data:\n  config: |\n    networking:\n      podSubnet: 10.244.0.0/16\n",
    "podSubnet 10.244.0.0/16"
)]
#[case(
    "data:\n  config: |\n    networking: [\n    podSubnet: 10.244.0.0/16\n",
    "podSubnet 10.244.0.0/16"
)]
fn the_clusters_networks_are_never_the_nodes(#[case] text: &str, #[case] expected: &str) {
    assert_eq!(said(text), (String::new(), expected.to_owned()));
}

#[rstest]
#[case("")]
#[case("# podCIDR: 10.244.1.0/24\n# --cluster-cidr=10.244.0.0/16")]
#[case("podCIDR: ''")]
#[case("podCIDR:")]
#[case("podCIDR: null")]
#[case("podCIDRs: []")]
#[case("podCIDRX: 10.244.1.0/24")]
#[case("xpodCIDR: 10.244.1.0/24")]
#[case("--service-cluster-ip-range=10.96.0.0/12")]
#[case("--x-cluster-cidr=10.96.0.0/12 -cluster-cidr=10.96.0.0/12")]
#[case("--cluster-cidr --other 10.96.0.0/12")]
#[case("args: [--cluster-cidr]\nother: [10.96.0.0/12]")]
#[case("cluster-cidr=10.244.0.0/16")]
#[case("env: [{name: cluster-cidr, value: 10.244.0.0/16}]")]
#[case("metadata: {annotations: {podCIDR: 10.244.1.0/24}}")]
#[case("data:\n  a: |\n    data:\n      b: |\n        podCIDR: 10.244.1.0/24\n")]
#[case("1: 2\n? [a, b]\n: c\n? {d: e}\n: f\ntrue: .inf\nnull: ~\nx: !tag y\nz: !!binary YQ==")]
#[case("x: !tag {y: 1}")]
fn what_says_nothing_says_nothing(#[case] text: &str) {
    assert_eq!(scan(text, Echo::Values), Report::default());
}

#[rstest]
#[case("a: [\npodCIDR: 10.244.1.0/24\n", "podCIDR 10.244.1.0/24")]
#[case("\tx\n - podCIDR: \"10.244.1.0/24\" # c\n", "podCIDR 10.244.1.0/24")]
#[case("}\npod-cidr: 10.244.1.0/24\r\n", "pod-cidr 10.244.1.0/24")]
#[case("}\n--pod-cidr=10.244.1.0/24\n", "--pod-cidr 10.244.1.0/24")]
#[case("}\n- --pod-cidr\n- 10.244.1.0/24\n", "--pod-cidr 10.244.1.0/24")]
#[case(
    "}\n# podCIDR: 10.9.9.0/24\npodCIDR: 10.244.1.0/24",
    "podCIDR 10.244.1.0/24"
)]
#[case(
    "}\npodCIDRs: [\"10.244.1.0/24\", 'fd00:1::/64']",
    "podCIDRs 10.244.1.0/24,fd00:1::/64"
)]
fn what_is_no_yaml_is_read_line_by_line(#[case] text: &str, #[case] expected: &str) {
    assert_eq!(said(text), (expected.to_owned(), String::new()));
    assert!(scan(text, Echo::Values).broken.is_some());
}

#[rstest]
#[case("podCIDR: 10.244.1.0", "podCIDR: not a CIDR such as")]
#[case("podCIDR: 10.244.1.5/24", "did you mean 10.244.1.0/24?")]
#[case("podCIDR: 24", "it is no network, nor a list of networks")]
#[case(
    "podCIDR: {base: 10.0.0.0/8}",
    "it is no network, nor a list of networks"
)]
#[case("podCIDR: ','", "it names no network")]
#[case("podCIDRs: [1, 10.244.1.0/24]", "it is no network, nor a list")]
#[case("podCIDRs: [a,a,a,a,a,a,a,a,a]", "it is no network, nor a list")]
#[case(
    "podCIDR: 10.244.1.0/24\npod-cidr: 10.244.2.0/24",
    "podCIDR is 10.244.1.0/24, but pod-cidr is 10.244.2.0/24"
)]
#[case(
    "podCIDR: 10.244.1.0/24\n---\npodCIDR: 10.244.2.0/24",
    "podCIDR is 10.244.1.0/24, but podCIDR is 10.244.2.0/24"
)]
fn what_makes_no_sense_is_named(#[case] text: &str, #[case] trouble: &str) {
    let report = scan(text, Echo::Values);
    assert_eq!(report.node.networks, None);
    let troubles = report.node.troubles.join("; ");
    assert!(troubles.contains(trouble), "{troubles}");
}

#[test]
fn a_long_value_is_not_kept() {
    let text = format!("podCIDR: {}", "1".repeat(200));
    let report = scan(&text, Echo::Values);
    assert_eq!(
        report.node.troubles,
        ["podCIDR: it is no network, nor a list of networks"]
    );
}

#[test]
fn a_good_value_counts_beside_a_bad_one() {
    let report = scan("podCIDR: x\npod-cidr: 10.244.1.0/24", Echo::Values);
    let expected = vec!["10.244.1.0/24".parse().unwrap()];
    assert_eq!(report.node.networks, Some(("pod-cidr", expected)));
    assert_eq!(report.node.troubles.len(), 1);
}

#[test]
fn values_of_secret_files_are_not_echoed() {
    for text in ["podCIDR: s3cret", "}\npodCIDR: s3cret", "--pod-cidr s3cret"] {
        let report = scan(text, Echo::Nothing);
        assert!(report.node.networks.is_none());
        assert!(!report.node.troubles.is_empty());
        assert!(!format!("{report:?}").contains("s3cret"), "{report:?}");
    }
}

#[test]
fn where_yaml_ends_is_named() {
    let report = scan("a: 1\nb: [1, 2\nc: 3\n", Echo::Values);
    let broken = report.broken.unwrap();
    assert!(broken.line > 1 && broken.column > 0, "{broken:?}");
}

/// A text that is small, and endless if all of it is read.
fn bomb() -> String {
    let list = |level: usize, item: &str| {
        let items = [item; 10].join(", ");
        format!("a{level}: &a{level} [{items}]\n")
    };
    let levels = (1..12).map(|level| list(level, &format!("*a{}", level - 1)));
    list(0, "x") + &levels.collect::<String>()
}

#[rstest]
#[case(bomb())]
#[case(format!("a: {}", "[".repeat(100_000)))]
#[case("- ".repeat(100_000))]
#[case("---\n".repeat(100_000))]
#[case("a: 1\n".repeat(200_000))]
#[case("&a ".repeat(100_000))]
#[case("x: &a {<<: *a}\n".to_owned())]
#[case("podCIDR: 10.244.1.0/24\n".repeat(40_000))]
fn what_is_made_to_be_endless_ends_soon(#[case] text: String) {
    let start = std::time::Instant::now();
    scan(&text, Echo::Values);
    let took = start.elapsed();
    assert!(took < std::time::Duration::from_secs(30), "{took:?}");
}

#[test]
fn a_bomb_does_not_hide_what_stands_beside_it() {
    let text = bomb() + "podCIDR: 10.244.1.0/24\n";
    assert_eq!(said(&text).0, "podCIDR 10.244.1.0/24");
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "(?s).{0,200}") {
        scan(&text, Echo::Values);
    }

    #[test]
    fn no_text_with_its_own_words_makes_it_panic(
        words in proptest::collection::vec(
            proptest::sample::select(vec![
                "podCIDR", "podCIDRs", "--cluster-cidr", "pod-cidr", ":", " ", "\n", "- ", "=",
                "\"", "'", "[", "]", "{", "}", ",", "#", "10.0.0.0/8", "fd00::/64", "---\n", "|\n",
                "data", "extraArgs", "name", "value", "&a", "*a", "!t ", "<<", "ä",
            ]),
            0..40,
        )
    ) {
        scan(&words.concat(), Echo::Values);
    }
}
