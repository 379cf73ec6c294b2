use std::cell::Cell;

use cni::NetConf;
use rstest::rstest;

use super::*;

/// The configuration of seed 001, verbatim.
const SEED: &str = include_str!("seed_001.json");

const SUBNET_ENV: &[(&str, &str)] = &[
    ("HEADCNI_NETWORK", "10.244.0.0/16"),
    ("HEADCNI_SUBNET", "10.244.1.1/24"),
    ("HEADCNI_MTU", "1400"),
    ("HEADCNI_IPMASQ", "true"),
];

const DUAL_STACK: &[(&str, &str)] = &[
    ("HEADCNI_NETWORK", "10.244.0.0/16"),
    ("HEADCNI_SUBNET", "10.244.1.0/24"),
    ("HEADCNI_IPV6_NETWORK", "fd00::/48"),
    ("HEADCNI_IPV6_SUBNET", "fd00:0:0:1::1/64"),
    ("HEADCNI_MTU", "1400"),
    ("HEADCNI_IPMASQ", "false"),
];

const IPV6_ONLY: &[(&str, &str)] = &[
    ("HEADCNI_IPV6_NETWORK", "fd00::/48"),
    ("HEADCNI_IPV6_SUBNET", "fd00:0:0:1::/64"),
    ("HEADCNI_MTU", "1400"),
    ("HEADCNI_IPMASQ", "false"),
];

fn call(verb: Verb, args: &str) -> Call {
    Call {
        verb,
        conf: NetConf::parse(br#"{"name":"net"}"#).unwrap(),
        env: [("CNI_ARGS", args)].into_iter().collect(),
    }
}

fn resolve_keys(keys: Keys<'_>, args: &str, load: LoadSubnets<'_>) -> Result<NativeConf, Error> {
    let none = Map::new();
    let runtime_config = keys.map().get("runtimeConfig").and_then(Value::as_object);
    let file = Path::new("/nonexistent/subnet.env");
    let runtime_config = runtime_config.unwrap_or(&none);
    resolve(&call(Verb::Add, args), keys, runtime_config, file, load)
        .map_err(CompleteError::into_error)
}

/// Resolves `entry`. Without variables, it is as if there were no subnet file.
fn resolved(entry: &Value, variables: &[(&str, &str)]) -> Result<NativeConf, Error> {
    let load = |file: &Path| {
        SubnetEnv::load(file, |key| {
            let found = variables.iter().find(|(name, _)| *name == key);
            found.map(|(_, value)| (*value).to_owned())
        })
    };
    resolve_keys(Keys::new(entry.as_object().unwrap(), ""), "", &load)
}

/// Resolves an entry that has all it needs, with these `CNI_ARGS`.
fn resolved_with_args(entry: &Value, args: &str) -> Result<NativeConf, Error> {
    let mut entry = entry.as_object().unwrap().clone();
    entry.entry("mtu").or_insert(json!(1280));
    entry.entry("pod_cidr").or_insert(json!("10.9.0.0/24"));
    let load = |_: &Path| -> Result<SubnetEnv, SubnetEnvError> { panic!("not needed") };
    resolve_keys(Keys::new(&entry, ""), args, &load)
}

fn parse_nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn the_document_of_seed_001_is_resolved_without_a_subnet_file() {
    let seed: Value = serde_json::from_str(SEED).unwrap();
    let load = |_: &Path| -> Result<SubnetEnv, SubnetEnvError> { panic!("nothing is missing") };
    let keys = Keys::new(seed.as_object().unwrap(), "");
    let conf = resolve_keys(keys, "IgnoreUnknown=1;K8S_POD_NAME=web", &load).unwrap();
    let socket = PathBuf::from("/var/run/tailscale/tailscaled.sock");
    let mut kept = conf.keys.clone();
    kept.remove("runtimeConfig");
    assert_eq!(Value::Object(kept), seed, "every key is passed on to IPAM");
    assert_eq!(
        conf,
        NativeConf {
            ipam_plugin: Some(PluginType::new("type", "host-local").unwrap()),
            mtu: 1280,
            pod_cidrs: parse_nets(&["10.244.0.0/24"]),
            service_cidrs: parse_nets(&["10.96.0.0/16"]),
            enable_ipv6: Some(false),
            tailscale_socket: Some(socket),
            keys: conf.keys.clone(),
            ..NativeConf::default()
        }
    );
    let [warning] = &warnings(keys)[..] else {
        panic!("{:?}", warnings(keys))
    };
    assert!(warning.contains("does not enforce NetworkPolicy"));
}

#[test]
fn a_resolved_configuration_is_recorded_as_it_is() {
    let entry = json!({ "service_cidr": "10.96.0.0/16", "status_strict": true, "x": { "y": [1] },
        "ipam": { "type": "host-local" }, "guard_pod_cidr": true, "tailscale_socket": "/s",
        "runtimeConfig": { "mac": A, "portMappings": [{ "hostPort": 80, "containerPort": 81 }],
            "bandwidth": { "ingressRate": 8_000_000, "egressRate": 16_000_000 } } });
    let conf = resolved_with_args(&entry, "").unwrap();
    let recorded = serde_json::to_vec(&conf).unwrap();
    assert_eq!(
        serde_json::from_slice::<NativeConf>(&recorded).unwrap(),
        conf
    );
    assert!(conf.mac.is_some() && conf.egress_limit.is_some() && conf.ipam_plugin.is_some());
    assert!(conf.guard_pod_cidr && conf.status_strict && !conf.port_mappings.is_empty());
}

#[test]
fn clean_up_resolves_the_valid_parts_of_a_configuration() {
    let entry = json!({ "mtu": 5, "pod_cidr": "10.9.0.0/24", "ipam": { "type": "host-local" } });
    let runtime_config = json!({ "portMappings": [5, { "hostPort": 80, "containerPort": 81 }] });
    let runtime_config = runtime_config.as_object().unwrap();
    let conf = for_cleanup(Keys::new(entry.as_object().unwrap(), ""), runtime_config);
    assert_eq!(conf.ipam_plugin.unwrap().as_str(), "host-local");
    assert_eq!(conf.pod_cidrs, parse_nets(&["10.9.0.0/24"]));
    let pod = ["10.9.0.2".parse().unwrap()];
    assert_eq!(conf.port_mappings.host_ports(&pod).len(), 1);
}

#[test]
fn absent_keys_have_defaults() {
    let entry = json!({ "tailscale_socket": "", "enable_network_policy": false });
    let conf = resolved_with_args(&entry, "").unwrap();
    assert_eq!((conf.tailscale_socket, conf.enable_ipv6), (None, None));
    assert_eq!((conf.status_strict, conf.guard_pod_cidr), (false, false));
    assert!(warnings(Keys::new(entry.as_object().unwrap(), "")).is_empty());
}

#[rstest]
#[case::pod_cidr(json!({ "pod_cidr": "10.244.0.0/16,fd00::/48", "service_cidr": "10.96.0.0/16",
    "ipam": { "subnet": "10.244.1.0/24" } }), &["10.244.0.0/16", "fd00::/48", "10.96.0.0/16"])]
#[case::ranges(json!({ "ipam": { "type": "host-local", "subnet": "10.9.0.0/24",
    "ranges": [[{ "subnet": "fd00::/64" }]] } }), &["10.9.0.0/24", "fd00::/64"])]
#[case::ranges_of_the_runtime(json!({
    "runtimeConfig": { "ipRanges": [[{ "subnet": "10.9.0.0/24" }]] } }), &["10.9.0.0/24"])]
#[case::ipam_without_ranges(json!({ "ipam": { "type": "dhcp", "subnet": "x" } }), &[])]
fn pod_and_service_cidrs_are_exempt(#[case] entry: Value, #[case] exempt: &[&str]) {
    let conf = resolved(&entry, &[]).unwrap();
    assert_eq!(conf.exempt_cidrs(), parse_nets(exempt));
}

#[rstest]
#[case::ipv4("10.244.0.0/24", json!([[{ "subnet": "10.244.0.0/24" }]]))]
#[case::dual("10.244.0.0/24, fd00::/64",
    json!([[{ "subnet": "10.244.0.0/24" }], [{ "subnet": "fd00::/64" }]]))]
#[case::ipv6_first("fd00::/64,10.244.0.0/24",
    json!([[{ "subnet": "fd00::/64" }], [{ "subnet": "10.244.0.0/24" }]]))]
fn pod_cidr_is_the_range_if_none_is_configured(#[case] pod_cidr: &str, #[case] ranges: Value) {
    for ipam in [
        json!(null),
        json!({}),
        json!({ "type": "headcni-ipam" }),
        json!({ "type": "headcni-ipam", "subnet": null, "ranges": [] }),
    ] {
        let conf = resolved(&json!({ "pod_cidr": pod_cidr, "ipam": ipam }), &[]).unwrap();
        assert_eq!(conf.keys["ipam"]["type"], "headcni-ipam");
        assert_eq!(conf.keys["ipam"]["ranges"], ranges);
    }
    let entry = json!({ "pod_cidr": pod_cidr, "ipam": { "type": "host-local" } });
    let conf = resolved(&entry, &[]).unwrap();
    assert_eq!(
        conf.keys["ipam"],
        json!({ "type": "host-local", "ranges": ranges })
    );
}

#[test]
fn the_subnets_of_the_node_are_the_range_without_a_pod_cidr() {
    let conf = resolved(&json!({ "x": [1], "pod_cidr": "" }), SUBNET_ENV).unwrap();
    assert_eq!(conf.mtu, 1400);
    assert_eq!(conf.pod_cidrs, parse_nets(&["10.244.0.0/16"]));
    assert_eq!(conf.keys["x"], json!([1]));
    assert_eq!(
        conf.keys["ipam"],
        json!({
            "type": "headcni-ipam",
            "ranges": [[{ "subnet": "10.244.1.0/24", "gateway": "10.244.1.1" }]]
        })
    );
    let error = resolved(&json!({}), &[]).unwrap_err();
    assert!(error.msg.contains("/nonexistent/subnet.env"), "{error}");
}

#[rstest]
#[case(json!({ "ipam": { "subnet": "10.9.0.0/24" } }))]
#[case(json!({ "ipam": { "ranges": [[{ "subnet": "10.9.0.0/24" }]] } }))]
#[case(json!({ "runtimeConfig": { "ipRanges": [[{ "subnet": "10.9.0.0/24" }]] } }))]
#[case(json!({ "ipam": { "subnet": "10.9.0.0/24" }, "pod_cidr": "10.9.0.0/16" }))]
#[case(json!({ "ipam": { "type": "dhcp" } }))]
#[case(json!({ "ipam": { "type": "whereabouts", "subnet": 5 }, "pod_cidr": "10.9.0.0/16" }))]
fn configured_ranges_are_unchanged(#[case] entry: Value) {
    let conf = resolved(&entry, SUBNET_ENV).unwrap();
    for key in ["subnet", "ranges"] {
        assert_eq!(conf.keys["ipam"].get(key), entry["ipam"].get(key));
    }
    assert_eq!(conf.mtu, 1400);
}

#[rstest]
#[case::said(json!({ "mtu": 1500 }), &[], 1500)]
#[case::said_and_in_the_file(json!({ "mtu": 1500 }), SUBNET_ENV, 1500)]
#[case::in_the_file(json!({}), SUBNET_ENV, 1400)]
#[case::null(json!({ "mtu": null }), SUBNET_ENV, 1400)]
#[case::in_the_environment(json!({}), &[("HEADCNI_MTU", "1300")], 1300)]
#[case::nowhere(json!({}), &[], 1280)]
fn the_mtu_is_what_is_nearest(
    #[case] mut entry: Value,
    #[case] variables: &[(&str, &str)],
    #[case] mtu: u32,
) {
    entry["pod_cidr"] = json!("10.9.0.0/24");
    assert_eq!(resolved(&entry, variables).unwrap().mtu, mtu);
}

#[rstest]
#[case::nothing(json!({ "mtu": 1280, "pod_cidr": "10.9.0.0/24" }), 0)]
#[case::mtu(json!({ "pod_cidr": "10.9.0.0/24" }), 1)]
#[case::ranges(json!({ "mtu": 1280 }), 1)]
#[case::both(json!({}), 1)]
fn the_subnet_file_is_read_only_if_something_is_missing(#[case] entry: Value, #[case] count: u32) {
    let reads = Cell::new(0);
    let load = |file: &Path| {
        reads.set(reads.get() + 1);
        SubnetEnv::load(file, |_| None)
    };
    let keys = Keys::new(entry.as_object().unwrap(), "");
    // It may fail, because there is no file.
    let _ = resolve_keys(keys, "", &load);
    assert_eq!(reads.get(), count);
}

#[test]
fn an_invalid_subnet_file_is_an_error_even_if_only_the_mtu_is_missing() {
    let entry = json!({ "pod_cidr": "10.9.0.0/24" });
    let error = resolved(&entry, &[("HEADCNI_MTU", "big")]).unwrap_err();
    assert!(error.msg.contains("HEADCNI_MTU"), "{error}");
}

#[rstest]
#[case::not_inside(json!({ "pod_cidr": "10.244.0.0/24", "ipam": { "subnet": "10.9.0.0/24" } }),
    &["ipam.subnet 10.9.0.0/24", "pod_cidr 10.244.0.0/24"])]
#[case::larger(json!({ "pod_cidr": "10.244.0.0/24", "ipam": { "subnet": "10.244.0.0/16" } }),
    &["ipam.subnet 10.244.0.0/16", "pod_cidr 10.244.0.0/24"])]
#[case::second_of_the_list(json!({ "pod_cidr": "10.244.0.0/24",
    "ipam": { "ranges": [[{ "subnet": "10.244.0.0/25" }, { "subnet": "10.9.0.0/24" }]] } }),
    &["ipam.ranges[0][1].subnet 10.9.0.0/24", "pod_cidr 10.244.0.0/24"])]
#[case::by_the_runtime(json!({ "pod_cidr": "10.244.0.0/24",
    "runtimeConfig": { "ipRanges": [[{ "subnet": "10.9.0.0/24" }]] } }),
    &["runtimeConfig.ipRanges[0][0].subnet 10.9.0.0/24", "pod_cidr 10.244.0.0/24"])]
#[case::other_family(json!({ "pod_cidr": "10.244.0.0/24",
    "ipam": { "type": "host-local", "subnet": "fd00::/64" } }),
    &["ipam.subnet fd00::/64", "pod_cidr 10.244.0.0/24"])]
#[case::service_in_pods(json!({ "pod_cidr": "10.0.0.0/8", "service_cidr": "10.96.0.0/16",
    "ipam": { "subnet": "10.9.0.0/24" } }),
    &["service_cidr 10.96.0.0/16", "pod_cidr 10.0.0.0/8"])]
#[case::pods_in_service(json!({ "pod_cidr": "10.244.0.0/24", "service_cidr": "10.0.0.0/8" }),
    &["service_cidr 10.0.0.0/8", "pod_cidr 10.244.0.0/24"])]
#[case::service_in_a_range(json!({ "service_cidr": "10.96.0.0/16",
    "ipam": { "subnet": "10.96.1.0/24" } }),
    &["service_cidr 10.96.0.0/16", "ipam.subnet 10.96.1.0/24"])]
#[case::service_of_ipv6(json!({ "pod_cidr": "fd00::/64", "service_cidr": "10.96.0.0/16,fd00::/48" }),
    &["service_cidr fd00::/48", "pod_cidr fd00::/64"])]
#[case::service_in_the_node_s(json!({ "service_cidr": "10.244.0.0/16" }),
    &["service_cidr 10.244.0.0/16", "HEADCNI_SUBNET 10.244.1.0/24"])]
#[case::service_and_dhcp(json!({ "ipam": { "type": "dhcp" }, "pod_cidr": "10.0.0.0/8",
    "service_cidr": "10.96.0.0/16" }), &["service_cidr 10.96.0.0/16", "pod_cidr 10.0.0.0/8"])]
fn contradictions_name_both_keys(#[case] entry: Value, #[case] parts: &[&str]) {
    let error = resolved(&entry, SUBNET_ENV).unwrap_err();
    assert_eq!(error.code, cni::code::INVALID_CONFIG);
    for part in parts {
        assert!(error.msg.contains(part), "{error}");
    }
}

#[rstest]
#[case("10.244.0.1/24", "10.244.0.0/24")]
#[case("fd00::1/64", "fd00::/64")]
#[case("10.244.0.0", "10.244.0.0")]
#[case("10.244.0.0/33", "10.244.0.0/33")]
#[case("10.244.0.0/24,", "\"\"")]
#[case("10.244.0.0/24;fd00::/64", "fd00::/64")]
#[case("nonsense", "nonsense")]
#[case("10.244.0.0/24,10.245.0.0/24", "10.245.0.0/24")]
#[case("0.0.0.0/0", "0.0.0.0/0")]
#[case("127.1.0.0/16", "127.0.0.0/8")]
#[case("224.1.0.0/16", "224.0.0.0/4")]
#[case("::/0", "::/0")]
#[case("fe80::/64", "fe80::/10")]
#[case("ff02::/64", "ff00::/8")]
fn an_invalid_cidr_is_rejected_with_key_and_value(#[case] text: &str, #[case] part: &str) {
    for key in ["pod_cidr", "service_cidr"] {
        let mut entry = json!({ "ipam": { "type": "dhcp" } });
        entry[key] = json!(text);
        let error = resolved(&entry, &[]).unwrap_err();
        assert_eq!(error.code, cni::code::INVALID_CONFIG);
        assert!(
            error.msg.contains(key) && error.msg.contains(part),
            "{error}"
        );
    }
}

#[rstest]
#[case(json!({ "pod_cidr": "10.244.0.0/31" }), "pod_cidr: subnet 10.244.0.0/31 is too small")]
#[case(json!({ "pod_cidr": ["10.244.0.0/24"] }), "pod_cidr")]
#[case(json!({ "service_cidr": 7 }), "service_cidr")]
#[case(json!({ "ipam": { "subnet": "x" } }), "ipam.subnet")]
#[case(json!({ "ipam": { "ranges": [{ "subnet": "10.9.0.0/24" }] } }), "ipam.ranges")]
#[case(json!({ "ipam": { "ranges": [[{}]] } }), "ipam.ranges[0][0].subnet")]
#[case(json!({ "runtimeConfig": { "ipRanges": [[5]] } }), "runtimeConfig.ipRanges")]
#[case(json!({ "ipam": { "type": "../x" } }), "../x")]
#[case(json!({ "ipam": { "type": "headcni" } }), "would call itself")]
#[case(json!({ "ipam": [] }), "ipam")]
#[case(json!({ "mtu": 67 }), "mtu")]
#[case(json!({ "enable_ipv6": "no" }), "enable_ipv6")]
#[case(json!({ "policy_fail_mode": "shut" }), "policy_fail_mode")]
#[case(json!({ "headscale_url": "hs" }), "headscale_url")]
#[case(json!({ "mtu": 1000, "pod_cidr": "fd00::/64" }), "mtu 1000")]
fn an_invalid_value_is_rejected_with_its_key(#[case] entry: Value, #[case] part: &str) {
    let error = resolved(&entry, SUBNET_ENV).unwrap_err();
    assert_eq!(error.code, cni::code::INVALID_CONFIG);
    assert!(error.msg.contains(part), "{error}");
}

#[rstest]
#[case::off_in_ipam(json!({ "enable_ipv6": false, "ipam": { "subnet": "fd00::/64" } }),
    &["enable_ipv6 is false", "ipam.subnet fd00::/64"])]
#[case::off_in_pod_cidr(json!({ "enable_ipv6": false, "pod_cidr": "10.9.0.0/24,fd00::/64" }),
    &["enable_ipv6 is false", "pod_cidr fd00::/64"])]
#[case::off_beside_ranges(json!({ "enable_ipv6": false, "pod_cidr": "10.9.0.0/24,fd00::/64",
    "ipam": { "subnet": "10.9.0.0/24" } }), &["enable_ipv6 is false", "pod_cidr fd00::/64"])]
#[case::off_and_dhcp(json!({ "enable_ipv6": false, "pod_cidr": "fd00::/64",
    "ipam": { "type": "dhcp" } }), &["enable_ipv6 is false", "pod_cidr fd00::/64"])]
#[case::on_in_ipam(json!({ "enable_ipv6": true, "ipam": { "subnet": "10.9.0.0/24" } }),
    &["enable_ipv6 is true", "ipam.subnet 10.9.0.0/24"])]
#[case::on_in_pod_cidr(json!({ "enable_ipv6": true, "pod_cidr": "10.9.0.0/24" }),
    &["enable_ipv6 is true", "pod_cidr 10.9.0.0/24"])]
#[case::on_in_the_file(json!({ "enable_ipv6": true }),
    &["enable_ipv6 is true", "HEADCNI_SUBNET 10.244.1.0/24"])]
fn enable_ipv6_that_contradicts_the_ranges_is_rejected(
    #[case] entry: Value,
    #[case] parts: &[&str],
) {
    let error = resolved(&entry, SUBNET_ENV).unwrap_err();
    for part in parts {
        assert!(error.msg.contains(part), "{error}");
    }
}

#[rstest]
#[case(json!({ "enable_ipv6": true, "pod_cidr": "10.9.0.0/24,fd00::/64" }))]
#[case(json!({ "enable_ipv6": true, "ipam": { "subnet": "fd00::/64" } }))]
#[case(json!({ "enable_ipv6": true, "ipam": { "type": "dhcp" }, "pod_cidr": "10.9.0.0/24" }))]
#[case(json!({ "enable_ipv6": false, "service_cidr": "fd00::/108", "pod_cidr": "10.9.0.0/24" }))]
fn enable_ipv6_that_agrees_with_the_ranges_is_accepted(#[case] entry: Value) {
    let conf = resolved(&entry, &[]).unwrap();
    assert_eq!(
        conf.enable_ipv6.map(Value::Bool).as_ref(),
        entry.get("enable_ipv6")
    );
}

#[test]
fn enable_ipv6_selects_the_subnets_of_the_node() {
    let families = |entry, variables| {
        let conf: Result<NativeConf, Error> = resolved(&entry, variables);
        conf.map(|conf| conf.keys["ipam"]["ranges"].as_array().unwrap().len())
    };
    assert_eq!(families(json!({}), DUAL_STACK), Ok(2));
    assert_eq!(families(json!({ "enable_ipv6": true }), DUAL_STACK), Ok(2));
    assert_eq!(families(json!({ "enable_ipv6": false }), DUAL_STACK), Ok(1));
    let conf = resolved(&json!({ "enable_ipv6": false }), DUAL_STACK).unwrap();
    assert_eq!(
        conf.keys["ipam"]["ranges"],
        json!([[{ "subnet": "10.244.1.0/24" }]])
    );
    assert_eq!(conf.pod_cidrs, parse_nets(&["10.244.0.0/16"]));
    let error = families(json!({ "enable_ipv6": false }), IPV6_ONLY).unwrap_err();
    assert!(error.msg.contains("HEADCNI_IPV6_SUBNET"), "{error}");
}

#[test]
fn strict_status_applies_to_ipam_too() {
    let of =
        |entry: Value| resolved(&entry, SUBNET_ENV).unwrap().keys["ipam"]["status_strict"].clone();
    assert_eq!(of(json!({ "status_strict": true })), true);
    assert_eq!(of(json!({})), Value::Null);
    assert_eq!(
        of(json!({ "status_strict": true, "ipam": { "status_strict": false } })),
        false
    );
    assert_eq!(
        of(json!({ "status_strict": true, "ipam": { "type": "host-local" } })),
        Value::Null
    );
}

#[test]
fn errors_name_the_member_of_the_chain() {
    let entry = json!({ "pod_cidr": "10.9.0.0/24", "ipam": { "subnet": "10.8.0.0/24" } });
    let load = |_: &Path| -> Result<SubnetEnv, SubnetEnvError> { panic!("not needed") };
    let entry = entry.as_object().unwrap();
    let mut entry = entry.clone();
    entry.insert("mtu".to_owned(), json!(1280));
    let keys = Keys::new(&entry, "plugins[1]");
    let error = resolve_keys(keys, "", &load).unwrap_err();
    for part in [
        "plugins[1].ipam.subnet 10.8.0.0/24",
        "plugins[1].pod_cidr 10.9.0.0/24",
    ] {
        assert!(error.msg.contains(part), "{error}");
    }
}

const A: &str = "02:00:00:00:00:0a";

#[rstest]
#[case::none(json!({}), "", None)]
#[case::runtime(json!({ "runtimeConfig": { "mac": A } }), "", Some(A))]
#[case::args(json!({ "args": { "cni": { "mac": A } } }), "", Some(A))]
#[case::cni_args(json!({}), "IgnoreUnknown=1;MAC=02:00:00:00:00:0A", Some(A))]
#[case::all(json!({ "runtimeConfig": { "mac": A }, "args": { "cni": { "mac": A } } }),
    "MAC=02-00-00-00-00-0a", Some(A))]
#[case::empty(json!({ "runtimeConfig": { "mac": "" }, "args": { "cni": null } }), "MAC=", None)]
#[case::empty_and_one(json!({ "runtimeConfig": { "mac": "" } }), "MAC=02:00:00:00:00:0a", Some(A))]
fn a_mac_can_be_requested_in_three_places(
    #[case] conf: Value,
    #[case] args: &str,
    #[case] mac: Option<&str>,
) {
    let resolved = resolved_with_args(&conf, args).unwrap().mac;
    assert_eq!(resolved.map(|mac| mac.to_string()).as_deref(), mac);
}

#[rstest]
#[case(json!({ "runtimeConfig": { "mac": "x" } }), "", &["runtimeConfig.mac", "\"x\""])]
#[case(json!({ "runtimeConfig": { "mac": 5 } }), "", &["runtimeConfig.mac", "5"])]
#[case(json!({ "args": { "cni": { "mac": "01:00:00:00:00:0a" } } }), "",
    &["args.cni.mac", "01:00:00:00:00:0a"])]
#[case(json!({ "args": { "cni": 5 } }), "", &["args.cni"])]
#[case(json!({}), "MAC=x", &["MAC in CNI_ARGS", "\"x\""])]
#[case(json!({ "runtimeConfig": { "mac": A } }), "MAC=02:00:00:00:00:0b",
    &["runtimeConfig.mac 02:00:00:00:00:0a", "MAC in CNI_ARGS 02:00:00:00:00:0b"])]
fn an_invalid_or_contradictory_mac_is_rejected(
    #[case] conf: Value,
    #[case] args: &str,
    #[case] parts: &[&str],
) {
    let error = resolved_with_args(&conf, args).unwrap_err();
    assert_eq!(error.code, cni::code::INVALID_CONFIG);
    for part in parts {
        assert!(error.msg.contains(part), "{error}");
    }
}

#[rstest]
#[case(json!({ "status_strict": "x" }), "status_strict")]
#[case(json!({ "runtimeConfig": { "bandwidth": { "ingressRate": -1 } } }), "ingressRate")]
#[case(json!({ "runtimeConfig": { "portMappings": {} } }), "portMappings")]
fn an_invalid_request_of_the_runtime_is_rejected_with_its_key(
    #[case] conf: Value,
    #[case] part: &str,
) {
    let error = resolved_with_args(&conf, "").unwrap_err();
    assert!(error.msg.contains(part), "{error}");
}
