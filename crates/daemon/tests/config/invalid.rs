//! Invalid configurations are refused with file, line, column, key and remedy.

use rstest::rstest;

use crate::fixture::{ConfigDir, unmark};

/// The binary refuses it with one error at the mark that contains these texts.
fn assert_refused(marked: &str, words: &[&str]) {
    let (yaml, line, column) = unmark(marked);
    let config = ConfigDir::new(&yaml);
    let answer = config.check();
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert_eq!(answer.out, "", "diagnostics go to stderr");
    let start = format!("{}:{line}:{column}: ", config.file().display());
    assert!(answer.err.starts_with(&start), "{start} in {}", answer.err);
    assert_eq!(answer.err.lines().count(), 1, "{}", answer.err);
    for word in words {
        assert!(answer.err.contains(word), "{word:?} in {}", answer.err);
    }
}

#[rstest]
#[case::unknown("network:\n    ▸mtuu: 1400\n", &["network.mtuu: unknown key", "did you mean mtu?"])]
#[case::unknown_section("▸netwrok:\n  mtu: 1400\n", &["netwrok: unknown key", "did you mean network?"])]
#[case::elsewhere("▸mtu: 1400\n", &["did you mean network.mtu?"])]
#[case::snake("network:\n  ▸pod_cidr: {}\n", &["did you mean podCIDR?"])]
#[case::plugin_s("▸headscale_url: x\n", &["did you mean headscale.url?"])]
#[case::hopeless("ipam:\n  ▸zzzzzzzz: 1\n", &["unknown key; known keys are type, strategy"])]
#[case::secret("headscale:\n  ▸apiKey: x\n", &["headscale.apiKey", "headscale.apiKeyFile"])]
#[case::not_shown("network: {? ▸\"a b\" : 1}\n", &["network.<not shown>: unknown key"])]
fn unknown_keys(#[case] yaml: &str, #[case] words: &[&str]) {
    assert_refused(yaml, words);
}

#[rstest]
#[case::number("network:\n  mtu: ▸big\n", &["network.mtu: must be a whole number from 576 to 65535"])]
#[case::limits("network: {mtu: ▸100}\n", &["whole number from 576"])]
#[case::negative("network: {mtu: ▸-1400}\n", &["whole number from 576"])]
#[case::fraction("network: {mtu: ▸1400.5}\n", &["whole number from 576"])]
#[case::huge("network: {mtu: ▸99999999999999999999999999}\n", &["whole number from 576"])]
#[case::quotes("network: {mtu: ▸\"1400\"}\n", &["without quotes"])]
#[case::flag("network: {masquerade: ▸yes}\n", &["network.masquerade: must be true or false"])]
#[case::choice("cni: {mode: ▸natve}\n", &["must be one of native, bridge", "did you mean \"native\"?"])]
#[case::level("logging:\n  level: ▸verbose\n", &["debug, info, warn, error, fatal"])]
#[case::off("network: {unmanagedLinks: ▸false}\n", &["did you mean \"off\"?"])]
#[case::text("cni: {name: ▸123}\n", &["cni.name: must be a string: quote it"])]
#[case::list("cni: {name: ▸[a]}\n", &["cni.name: must be a single string"])]
#[case::one_of_a_list("dns: {magicDNS: {nameservers: ▸10.2.0.1}}\n", &["must be a list like"])]
#[case::numbers("dns: {magicDNS: {searchDomains: [a.b, ▸1]}}\n", &["quote them"])]
#[case::ip("dns: {magicDNS: {nameservers: [10.2.0.1, ▸dns]}}\n", &["IP address", "for example [\"10.2.0.1\"]"])]
#[case::gateway("ipam: {gateway: ▸10.0.0.0/8}\n", &["ipam.gateway", "for example \"10.244.1.1\""])]
#[case::address("monitoring: {address: ▸localhost:9844}\n", &["monitoring.address", "for example \"127.0.0.1:9844\""])]
#[case::span("pods: {orphanGrace: ▸5 minutes}\n", &["duration such as 30s"])]
#[case::zero("pods: {orphanGrace: ▸0s}\n", &["not a duration"])]
#[case::unit("pods: {orphanGrace: ▸300}\n", &["must be a string"])]
#[case::per_node("network: {podCIDR: {perNode: ▸/99/1}}\n", &["such as /24"])]
#[case::per_node_number("network: {podCIDR: {perNode: ▸300}}\n", &["perNode", "/24"])]
#[case::section("network: ▸1400\n", &["network: must be a mapping of keys"])]
#[case::table("network: {podCIDR: {nodes: ▸[a]}}\n", &["nodes: must be a mapping of keys"])]
#[case::root_list("▸- network\n", &["must be a mapping of keys", "config example"])]
#[case::root_text("▸network\n", &["must be a mapping of keys"])]
#[case::plugin("cni: {cniPlugins: ▸[tuning]}\n", &["list of mappings", "{type: tuning}"])]
#[case::network("network: {podCIDR: {nodeLocal: ▸10.244.1.0/33}}\n", &["such as 10.244.0.0/16"])]
#[case::host_bits("network: {podCIDR: {nodeLocal: ▸10.244.1.5/24}}\n", &["did you mean 10.244.1.0/24?"])]
#[case::second("network: {podCIDR: {base: [10.244.0.0/16, ▸fd00]}}\n", &["podCIDR.base: not a CIDR"])]
#[case::of_node("network:\n  podCIDR:\n    nodes:\n      n1: ▸10.244.1\n", &["nodes.n1: not a CIDR"])]
#[case::no_value("network:\n  podCIDR:\n    nodes:\n      ▸n1:\n", &["nodes.n1: has no value"])]
#[case::of_node_map("network: {podCIDR: {nodes: {n1: ▸{a: b}}}}\n", &["nodes.n1", "a CIDR such as"])]
fn invalid_values(#[case] yaml: &str, #[case] words: &[&str]) {
    assert_refused(yaml, words);
}

#[rstest]
#[case::two_documents("network: {mtu: 1400}\n---\n▸network: {mtu: 1500}\n", &["second document"])]
#[case::twice("network: {mtu: 1400}\n▸network: {mtu: 1500}\n", &["duplicate key"])]
#[case::tab("network:\n\t▸mtu: 1400\n", &["not valid YAML", "indentation"])]
#[case::colon("network: mtu▸: 1400\n", &["not valid YAML"])]
#[case::anchor("network: ▸*nowhere\n", &["without an anchor"])]
fn invalid_yaml(#[case] yaml: &str, #[case] words: &[&str]) {
    assert_refused(yaml, words);
}

#[rstest]
#[case::two_of_a_family("network: {podCIDR: {base: [10.1.0.0/16, ▸10.2.0.0/16]}}\n", &["second IPv4 CIDR", "keep one"])]
#[case::two_in_a_text("network: {podCIDR: {nodeLocal: ▸\"10.1.0.0/24,10.2.0.0/24\"}}\n", &["10.2.0.0/24 is a second"])]
#[case::two_services("network: {serviceCIDR: [10.1.0.0/16, ▸10.2.0.0/16]}\n", &["keep one"])]
#[case::two_of_a_node("network: {podCIDR: {nodes: {n: [10.1.0.0/24, ▸10.2.0.0/24]}}}\n", &["nodes.n", "keep one"])]
#[case::outside("network:\n  podCIDR:\n    base: 10.244.0.0/16\n    nodeLocal: ▸10.245.1.0/24\n", &["outside network.podCIDR.base 10.244.0.0/16", "correct base"])]
#[case::larger("network: {podCIDR: {base: 10.244.0.0/16, nodeLocal: ▸10.244.0.0/15}}\n", &["outside network.podCIDR.base"])]
#[case::node_outside("network: {podCIDR: {base: 10.244.0.0/16, nodes: {n: ▸10.1.0.0/24}}}\n", &["nodes.n: 10.1.0.0/24 is outside"])]
#[case::family_outside("network: {podCIDR: {base: 10.244.0.0/16, nodeLocal: [10.244.1.0/24, ▸\"fd00::/64\"]}}\n", &["is IPv6", "add the cluster CIDR"])]
#[case::same("network: {podCIDR: {nodes: {a: 10.1.0.0/24, b: ▸10.1.0.0/24}}}\n", &["nodes.a", "give each node its own"])]
#[case::overlapping("network: {podCIDR: {nodes: {a: ▸10.1.0.128/25, b: 10.1.0.0/24}}}\n", &["nodes.a: 10.1.0.128/25 overlaps with network.podCIDR.nodes.b"])]
#[case::hidden_overlap("network: {podCIDR: {nodes: {a: 10.0.0.0/8, b: 11.0.0.0/24, c: ▸10.9.0.0/24}}}\n", &["overlaps with network.podCIDR.nodes.a"])]
#[case::node_name("network: {podCIDR: {nodes: {Node_1: ▸10.1.0.0/24}}}\n", &["nodes.Node_1", "kubectl get nodes"])]
#[case::no_network("network: {podCIDR: {nodes: {n: ▸[]}}}\n", &["has no CIDR"])]
#[case::services("network: {serviceCIDR: ▸10.244.96.0/20, podCIDR: {base: 10.244.0.0/16, nodeLocal: 10.244.96.0/24}}\n", &["overlaps with network.podCIDR.base 10.244.0.0/16", "need separate CIDRs"])]
#[case::services_of_node("network: {serviceCIDR: ▸10.0.0.0/8, podCIDR: {nodes: {n: 10.244.1.0/24}}}\n", &["overlaps with network.podCIDR.nodes.n"])]
#[case::small("network: {podCIDR: {nodeLocal: ▸10.244.1.0/31}}\n", &["too small", "/30"])]
#[case::small_ipv6("network: {podCIDR: {nodeLocal: ▸\"fd00::/127\"}}\n", &["too small", "/126"])]
#[case::loopback("network: {podCIDR: {nodeLocal: ▸127.1.0.0/24}}\n", &["loopback", "use a private one"])]
#[case::multicast("network: {podCIDR: {base: ▸239.0.0.0/16}}\n", &["multicast"])]
#[case::link_local("network: {podCIDR: {base: ▸169.254.0.0/16}}\n", &["link-local"])]
#[case::everything("network: {podCIDR: {base: ▸0.0.0.0/0}}\n", &["any address"])]
#[case::tailnet("network: {podCIDR: {base: ▸100.96.0.0/11}}\n", &["tailnet's own"])]
#[case::tailnet_services("network: {serviceCIDR: ▸100.64.0.0/16}\n", &["tailnet's own"])]
#[case::loopback_ipv6("network: {podCIDR: {base: ▸\"::/64\"}}\n", &["loopback"])]
#[case::link_local_ipv6("network: {podCIDR: {base: ▸\"fe80::/64\"}}\n", &["link-local"])]
#[case::multicast_ipv6("network: {podCIDR: {base: ▸\"ff05::/64\"}}\n", &["multicast"])]
#[case::per_node("network: {podCIDR: {base: 10.244.0.0/16, perNode: ▸/12}}\n", &["perNode: /12 is larger than the cluster CIDR 10.244.0.0/16", "/16 or longer"])]
#[case::per_node_default("network: {podCIDR: {base: ▸10.244.0.0/25, allowGuess: true}}\n", &["perNode: /24 is larger"])]
#[case::ipv6_wanted("network:\n  enableIPv6: ▸true\n  podCIDR: {base: 10.244.0.0/16}\n", &["no IPv6 pod CIDR", "add one"])]
#[case::ipv6_unwanted("network: {enableIPv6: ▸false, podCIDR: {base: \"fd00::/56\"}}\n", &["network.podCIDR.base has fd00::/56"])]
#[case::mtu_of_ipv6("network: {mtu: ▸1200, podCIDR: {base: \"fd00::/56\"}}\n", &["too small for IPv6", "1280"])]
fn contradicting_cidrs(#[case] yaml: &str, #[case] words: &[&str]) {
    assert_refused(yaml, words);
}

#[rstest]
#[case::start("network: {podCIDR: {nodeLocal: 10.244.1.0/24}}\nipam: {rangeStart: ▸10.244.2.10}\n", &["outside network.podCIDR.nodeLocal 10.244.1.0/24"])]
#[case::end("network: {podCIDR: {base: 10.244.0.0/16}}\nipam: {rangeEnd: ▸10.1.0.1}\n", &["outside network.podCIDR.base"])]
#[case::of_one_node("network: {podCIDR: {nodes: {a: 10.1.0.0/24, b: 10.2.0.0/24}}}\nipam: {rangeStart: ▸10.1.0.10}\n", &["outside network.podCIDR.nodes.b"])]
#[case::reversed("ipam: {rangeStart: 10.244.1.20, rangeEnd: ▸10.244.1.10}\n", &["before rangeStart", "swap"])]
#[case::families("ipam: {rangeStart: 10.244.1.20, rangeEnd: ▸\"fd00::1\"}\n", &["another IP family", "use one family"])]
#[case::gateway_family("network: {podCIDR: {nodeLocal: 10.244.1.0/24}}\nipam: {gateway: ▸\"fd00::1\"}\n", &["another IP family", "10.244.1.0/24"])]
#[case::gateway_first("network: {podCIDR: {nodeLocal: 10.244.1.0/24}}\nipam: {gateway: ▸10.244.1.0}\n", &["the network address"])]
#[case::gateway_last("network: {podCIDR: {nodeLocal: 10.244.1.0/24}}\nipam: {gateway: ▸10.244.1.255}\n", &["broadcast"])]
#[case::host_local("ipam: {type: host-local, strategy: ▸random}\n", &["random is a strategy of headcni-ipam", "is host-local"])]
#[case::bridge("cni: {mode: bridge}\nipam: {strategy: ▸dense-pack}\n", &["set ipam.type to headcni-ipam"])]
#[case::other("ipam: {type: dhcp, rangeStart: ▸10.244.1.1}\n", &["only headcni-ipam and host-local"])]
#[case::path("ipam: {type: ▸../../sbin/reboot}\n", &["not a plugin name"])]
#[case::itself("ipam: {type: ▸headcni}\n", &["use headcni-ipam"])]
fn contradicting_addresses(#[case] yaml: &str, #[case] words: &[&str]) {
    assert_refused(yaml, words);
}

#[rstest]
#[case::name("cni: {name: ▸a/b}\n", &["not a network name", "as in headcni"])]
#[case::empty("cni: {name: ▸\"\"}\n", &["not a network name"])]
#[case::bridge("cni: {bridge: {name: ▸sixteen-bytes-xy}}\n", &["up to 15 bytes"])]
#[case::taken("cni: {bridge: {name: ▸lo}}\n", &["such as headcni0"])]
#[case::no_type("cni:\n  cniPlugins:\n    - ▸mtu: 1\n", &["cni.cniPlugins[0].type: every plugin needs a type"])]
#[case::path("cni: {cniPlugins: [{type: tuning}, {type: ▸../x}]}\n", &["cniPlugins[1].type", "name of its program"])]
#[case::ours("cni: {cniPlugins: [{type: ▸headcni}]}\n", &["in the configuration already"])]
#[case::twice("cni: {cniPlugins: [{type: tuning}, {type: ▸tuning}]}\n", &["tuning is a duplicate", "into one"])]
#[case::log("cni: {mode: bridge, logFile: ▸/var/log/x}\n", &["cni.mode to native"])]
#[case::strict("cni: {mode: bridge, statusStrict: ▸true}\n", &["bridge mode does not use"])]
#[case::names("cni: {mode: bridge}\ndns: {magicDNS: {enable: ▸true}}\n", &["dns.magicDNS.enable", "remove the key"])]
#[case::shared_dir("cni: {confDir: ▸/etc}\n", &["would be renamed", "/etc/cni/net.d"])]
#[case::relative("cni: {binDir: ▸cni/bin}\n", &["must be an absolute path"])]
#[case::relative_data("ipam: {dataDir: ▸./leases}\n", &["absolute path"])]
#[case::dir("cni: {logFile: ▸/var/log/}\n", &["is a directory"])]
#[case::nul("tailscale: {socket: ▸\"/run/a\\0b\"}\n", &["NUL"])]
#[case::socket("tailscale: {socket: ▸/run/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}\n", &["107 bytes"])]
fn values_that_runtimes_or_plugins_refuse(#[case] yaml: &str, #[case] words: &[&str]) {
    assert_refused(yaml, words);
}

#[rstest]
#[case::scheme("headscale: {url: ▸ftp://x}\n", &["must begin with https://"])]
#[case::no_scheme("headscale: {url: ▸headscale.example.org}\n", &["must begin with https://"])]
#[case::user("headscale: {url: ▸\"https://u:p@x\"}\n", &["user name", "remove it"])]
#[case::query("headscale: {url: ▸\"https://x/?k=v\"}\n", &["query or a fragment"])]
#[case::fragment("headscale: {url: ▸\"https://x/#y\"}\n", &["query or a fragment"])]
#[case::host("headscale: {url: ▸\"https://\"}\n", &["a URL such as https://"])]
#[case::no_host("headscale: {url: ▸\"https://:443/\"}\n", &["a URL such as https://"])]
#[case::port("headscale: {url: ▸\"https://x:99999\"}\n", &["a URL such as https://"])]
#[case::loopback("dns: {magicDNS: {nameservers: [10.2.0.1, ▸127.0.0.53]}}\n", &["127.0.0.53 is not reachable from pods"])]
#[case::search("dns: {magicDNS: {searchDomains: [c.example.org, ▸a b]}}\n", &["searchDomains: not a domain"])]
#[case::base("dns: {magicDNS: {baseDomain: ▸-x.org}}\n", &["baseDomain: not a domain"])]
#[case::grace("pods: {orphanGrace: ▸30s}\n", &["60s or more"])]
#[case::interval("pods: {orphanInterval: ▸500ms}\n", &["1s or more"])]
#[case::pprof("monitoring:\n  address: 0.0.0.0:9844\n  pprof: ▸true\n", &["127.0.0.1", "pprof to false"])]
#[case::absent_secret("headscale: {url: https://x, apiKeyFile: ▸/nonexistent/key}\n", &["no such file", "remove the key"])]
#[case::dir_as_secret("headscale: {url: https://x, preAuthKeyFile: ▸/proc}\n", &["a directory"])]
#[case::relative("headscale: {caFile: ▸ca.pem}\n", &["absolute path"])]
#[case::no_server("tailscale: {mode: ▸daemon}\n", &["set headscale.url"])]
#[case::mesh_mode("tailscale: {mode: ▸both}\n", &["auto, daemon, container, host, off"])]
#[case::long_interface("tailscale: {interface: ▸sixteen-letters-}\n", &["interface name"])]
#[case::bridge_as_mesh("tailscale: {interface: ▸headcni0}\n", &["another interface"])]
#[case::relative_program("tailscale: {program: ▸bin/tailscaled}\n", &["absolute path"])]
#[case::mesh_name("tailscale: {hostname: ▸a.b}\n", &["not a hostname"])]
#[case::no_tags("tailscale: {tags: ▸[]}\n", &["set one, such as tag:k8s-node"])]
#[case::bad_tag("tailscale: {tags: [tag:a, ▸node]}\n", &["not a tag"])]
#[case::mesh_port("tailscale: {port: ▸70000}\n", &["65535"])]
#[case::relative_state("tailscale: {stateDir: ▸state}\n", &["absolute path"])]
fn other_harmful_values(#[case] yaml: &str, #[case] words: &[&str]) {
    assert_refused(yaml, words);
}

#[test]
fn all_errors_are_reported_at_once() {
    let structural = ConfigDir::new("network:\n  mtu: x\n  mtuu: 1\ncni: {mode: y}\nlogs: 1\n");
    let answer = structural.check();
    let places: Vec<&str> = answer
        .err
        .lines()
        .map(|line| place(&structural, line))
        .collect();
    assert_eq!(places, ["2:8", "3:3", "4:13", "5:1"], "{}", answer.err);

    let semantic = ConfigDir::new(
        "network: {mtu: 1000, podCIDR: {base: \"fd00::/56\"}}\npods: {orphanGrace: 1s}\ncni: {name: /}\n",
    );
    let answer = semantic.check();
    assert_eq!(answer.err.lines().count(), 3, "{}", answer.err);
}

fn place<'a>(config: &ConfigDir, line: &'a str) -> &'a str {
    let start = format!("{}:", config.file().display());
    line.strip_prefix(&start)
        .unwrap()
        .split(": ")
        .next()
        .unwrap()
}

#[test]
fn a_long_list_of_errors_is_truncated() {
    let lines: Vec<String> = (0..5000).map(|key| format!("k{key}: 1")).collect();
    let answer = ConfigDir::new(&lines.join("\n")).check();
    assert_eq!(answer.err.lines().count(), 101);
    assert!(answer.err.ends_with("… and 4900 more\n"), "{}", answer.err);
}

#[rstest]
#[case("")]
#[case("# nothing\n")]
#[case("---\n")]
#[case("network:\n  # mtu: 1400\ncni:\n")]
#[case("network: {podCIDR: {perNode: 25}}\n")]
#[case("monitoring: {address: \"[::1]:0\", pprof: true}\n")]
#[case("dns: {magicDNS: {enable: true}}\n")]
#[case("network: {podCIDR: {nodeLocal: \"10.1.0.0/24, fd00::/64\"}}\n")]
#[case("network: {podCIDR: {nodeLocal: 10.1.0.0/26, base: 10.1.0.0/25}}\n")]
#[case(
    "network: {podCIDR: {nodeLocal: 10.1.0.0/24}}\nipam: {rangeStart: 10.1.0.1, rangeEnd: 10.1.0.9, gateway: 10.1.0.5}\n"
)]
#[case("network: {enableIPv6: true}\n")]
#[case("cni: {confDir: /etc/cni/net.d, exclusive: true}\n")]
#[case("cni: {mode: bridge}\nipam: {type: headcni-ipam, strategy: random}\n")]
#[case("headscale: {url: \"https://[fd00::1]:8443/base\"}\n")]
fn harmless_values_are_accepted(#[case] yaml: &str) {
    let answer = ConfigDir::new(yaml).check();
    assert_eq!(
        (answer.code, answer.err.as_str()),
        (Some(0), ""),
        "{answer:?}"
    );
    assert_eq!(answer.out.lines().count(), 1);
}

#[rstest]
#[case("networkPolicy: {enabled: ▸true}\n", "not enforced yet")]
#[case("headscale: {url: ▸\"http://headscale.example.org\"}\n", "in clear")]
#[case("cni:\n  bridge: ▸{name: br0}\n", "cni.mode to bridge")]
#[case("cni: {cniPlugins: ▸[{type: portmap}]}\n", "remove portmap")]
#[case("network: {podCIDR: {allowGuess: ▸true}}\n", "set base")]
#[case(
    "network: {podCIDR: {base: 10.1.0.0/16, nodeLocal: ▸10.1.0.0/16}}\n",
    "second node"
)]
#[case("headscale: {caFile: ▸/etc/ca.pem}\n", "without headscale.url")]
#[case("cni: {mode: bridge, bridge: {ipMasq: ▸true}}\n", "hides pod IPs")]
#[case(
    "dns: {magicDNS: {nameservers: ▸[10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.0.4]}}\n",
    "best three"
)]
fn a_likely_mistake_is_a_warning(#[case] marked: &str, #[case] words: &str) {
    let (yaml, line, column) = unmark(marked);
    let config = ConfigDir::new(&yaml);
    let answer = config.check();
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let start = format!("warning: {}:{line}:{column}: ", config.file().display());
    assert!(answer.err.starts_with(&start), "{start} in {}", answer.err);
    assert!(answer.err.contains(words), "{}", answer.err);
    assert_eq!(answer.err.lines().count(), 1, "{}", answer.err);
}
