use rstest::rstest;

use super::*;

/// The CIDRs of node and cluster in a text.
fn scanned(text: &str) -> (String, String) {
    let report = scan(text, Echo::Values);
    let text = |found: ScopeCidrs| match found.networks {
        Some((key, nets)) => format!("{key} {}", Networks(nets)),
        None => found.problems.join("; "),
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
fn every_syntax_of_a_pod_cidr_is_read(#[case] text: &str, #[case] expected: &str) {
    assert_eq!(scanned(text), (expected.to_owned(), String::new()));
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
fn a_cluster_cidr_is_not_a_pod_cidr(#[case] text: &str, #[case] expected: &str) {
    assert_eq!(scanned(text), (String::new(), expected.to_owned()));
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
fn other_text_has_no_cidr(#[case] text: &str) {
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
fn invalid_yaml_is_read_line_by_line(#[case] text: &str, #[case] expected: &str) {
    assert_eq!(scanned(text), (expected.to_owned(), String::new()));
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
fn an_invalid_value_is_reported(#[case] text: &str, #[case] problem: &str) {
    let report = scan(text, Echo::Values);
    assert_eq!(report.node.networks, None);
    let problems = report.node.problems.join("; ");
    assert!(problems.contains(problem), "{problems}");
}

#[test]
fn a_long_value_is_refused() {
    let text = format!("podCIDR: {}", "1".repeat(200));
    let report = scan(&text, Echo::Values);
    assert_eq!(
        report.node.problems,
        ["podCIDR: it is no network, nor a list of networks"]
    );
}

#[test]
fn a_valid_value_counts_beside_an_invalid_one() {
    let report = scan("podCIDR: x\npod-cidr: 10.244.1.0/24", Echo::Values);
    let expected = vec!["10.244.1.0/24".parse().unwrap()];
    assert_eq!(report.node.networks, Some(("pod-cidr", expected)));
    assert_eq!(report.node.problems.len(), 1);
}

#[test]
fn values_of_secret_files_are_not_echoed() {
    for text in ["podCIDR: s3cret", "}\npodCIDR: s3cret", "--pod-cidr s3cret"] {
        let report = scan(text, Echo::Nothing);
        assert!(report.node.networks.is_none());
        assert!(!report.node.problems.is_empty());
        assert!(!format!("{report:?}").contains("s3cret"), "{report:?}");
    }
}

#[test]
fn a_syntax_error_has_a_position() {
    let report = scan("a: 1\nb: [1, 2\nc: 3\n", Echo::Values);
    let broken = report.broken.unwrap();
    assert!(broken.line > 1 && broken.column > 0, "{broken:?}");
}

/// An alias bomb.
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
fn hostile_text_is_scanned_in_time(#[case] text: String) {
    let start = std::time::Instant::now();
    scan(&text, Echo::Values);
    let took = start.elapsed();
    assert!(took < std::time::Duration::from_secs(30), "{took:?}");
}

#[test]
fn an_alias_bomb_does_not_hide_a_pod_cidr() {
    let text = bomb() + "podCIDR: 10.244.1.0/24\n";
    assert_eq!(scanned(&text).0, "podCIDR 10.244.1.0/24");
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "(?s).{0,200}") {
        scan(&text, Echo::Values);
    }

    #[test]
    fn no_mix_of_keywords_makes_it_panic(
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
