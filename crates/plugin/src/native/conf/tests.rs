use std::cell::Cell;

use rstest::rstest;

use super::*;

/// The configuration of the user's document, to the letter.
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

/// Completes `entry`. No variables: as if there were no subnet file.
fn completed(entry: &Value, variables: &[(&str, &str)]) -> Result<Value, Error> {
    let entry = entry.as_object().unwrap();
    let load = |file: &Path| {
        SubnetEnv::load(file, |key| {
            let found = variables.iter().find(|(name, _)| *name == key);
            found.map(|(_, value)| (*value).to_owned())
        })
    };
    let none = Map::new();
    let runtime_config = entry.get("runtimeConfig").and_then(Value::as_object);
    complete(
        Keys::new(entry, ""),
        runtime_config.unwrap_or(&none),
        Path::new("/nonexistent/subnet.env"),
        &load,
    )
    .map(Value::Object)
    .map_err(CompleteError::into_error)
}

#[test]
fn the_user_s_document_is_complete_as_it_stands() {
    let seed: Value = serde_json::from_str(SEED).unwrap();
    let load = |_: &Path| -> Result<SubnetEnv, SubnetEnvError> { panic!("nothing is missing") };
    let keys = Keys::new(seed.as_object().unwrap(), "");
    let conf = complete(keys, &Map::new(), Path::new("/x"), &load).unwrap();
    assert_eq!(Value::Object(conf), seed);
}

#[rstest]
#[case::ipv4("10.244.0.0/24", json!([[{ "subnet": "10.244.0.0/24" }]]))]
#[case::dual("10.244.0.0/24, fd00::/64",
    json!([[{ "subnet": "10.244.0.0/24" }], [{ "subnet": "fd00::/64" }]]))]
#[case::ipv6_first("fd00::/64,10.244.0.0/24",
    json!([[{ "subnet": "fd00::/64" }], [{ "subnet": "10.244.0.0/24" }]]))]
fn pod_cidr_is_the_range_where_none_is_named(#[case] pod_cidr: &str, #[case] ranges: Value) {
    for ipam in [
        json!(null),
        json!({}),
        json!({ "type": "headcni-ipam" }),
        json!({ "type": "headcni-ipam", "subnet": null, "ranges": [] }),
    ] {
        let conf = completed(&json!({ "pod_cidr": pod_cidr, "ipam": ipam }), &[]).unwrap();
        assert_eq!(conf["ipam"]["type"], "headcni-ipam");
        assert_eq!(conf["ipam"]["ranges"], ranges);
        assert_eq!(conf["pod_cidr"], pod_cidr);
    }
    let entry = json!({ "pod_cidr": pod_cidr, "ipam": { "type": "host-local" } });
    let conf = completed(&entry, &[]).unwrap();
    assert_eq!(
        conf["ipam"],
        json!({ "type": "host-local", "ranges": ranges })
    );
}

#[test]
fn the_node_s_subnets_are_the_range_where_there_is_no_pod_cidr_either() {
    let conf = completed(&json!({ "x": [1], "pod_cidr": "" }), SUBNET_ENV).unwrap();
    assert_eq!(
        conf,
        json!({
            "x": [1],
            "mtu": 1400,
            "pod_cidr": "10.244.0.0/16",
            "ipam": {
                "type": "headcni-ipam",
                "ranges": [[{ "subnet": "10.244.1.0/24", "gateway": "10.244.1.1" }]]
            }
        })
    );
    let error = completed(&json!({}), &[]).unwrap_err();
    assert!(error.msg.contains("/nonexistent/subnet.env"), "{error}");
}

#[rstest]
#[case(json!({ "ipam": { "subnet": "10.9.0.0/24" } }))]
#[case(json!({ "ipam": { "ranges": [[{ "subnet": "10.9.0.0/24" }]] } }))]
#[case(json!({ "runtimeConfig": { "ipRanges": [[{ "subnet": "10.9.0.0/24" }]] } }))]
#[case(json!({ "ipam": { "subnet": "10.9.0.0/24" }, "pod_cidr": "10.9.0.0/16" }))]
#[case(json!({ "ipam": { "type": "dhcp" } }))]
#[case(json!({ "ipam": { "type": "whereabouts", "subnet": 5 }, "pod_cidr": "10.9.0.0/16" }))]
fn named_ranges_stay_as_they_are(#[case] entry: Value) {
    let conf = completed(&entry, SUBNET_ENV).unwrap();
    for key in ["subnet", "ranges"] {
        assert_eq!(conf["ipam"].get(key), entry["ipam"].get(key));
    }
    assert_eq!(conf.get("pod_cidr"), entry.get("pod_cidr"));
    assert_eq!(conf["mtu"], 1400);
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
    assert_eq!(completed(&entry, variables).unwrap()["mtu"], mtu);
}

#[rstest]
#[case::nothing(json!({ "mtu": 1280, "pod_cidr": "10.9.0.0/24" }), 0)]
#[case::mtu(json!({ "pod_cidr": "10.9.0.0/24" }), 1)]
#[case::ranges(json!({ "mtu": 1280 }), 1)]
#[case::both(json!({}), 1)]
fn the_subnet_file_is_read_only_for_what_is_missing(#[case] entry: Value, #[case] count: u32) {
    let reads = Cell::new(0);
    let load = |file: &Path| {
        reads.set(reads.get() + 1);
        SubnetEnv::load(file, |_| None)
    };
    let keys = Keys::new(entry.as_object().unwrap(), "");
    // Whether it succeeds depends on the file, and that is not there.
    let _ = complete(keys, &Map::new(), Path::new("/nonexistent"), &load);
    assert_eq!(reads.get(), count);
}

#[test]
fn a_damaged_subnet_file_is_told_though_only_the_mtu_is_missing() {
    let entry = json!({ "pod_cidr": "10.9.0.0/24" });
    let error = completed(&entry, &[("HEADCNI_MTU", "big")]).unwrap_err();
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
fn contradictions_are_told_by_both_keys(#[case] entry: Value, #[case] parts: &[&str]) {
    let error = completed(&entry, SUBNET_ENV).unwrap_err();
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
#[case("224.1.0.0/16", "224.0.0.0/3")]
#[case("::/0", "::/0")]
#[case("fe80::/64", "fe80::/10")]
#[case("ff02::/64", "ff00::/8")]
fn a_network_that_can_t_be_is_refused_by_key_and_value(#[case] text: &str, #[case] part: &str) {
    for key in ["pod_cidr", "service_cidr"] {
        let mut entry = json!({ "ipam": { "type": "dhcp" } });
        entry[key] = json!(text);
        let error = completed(&entry, &[]).unwrap_err();
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
fn a_wrong_value_is_refused_by_key(#[case] entry: Value, #[case] part: &str) {
    let error = completed(&entry, SUBNET_ENV).unwrap_err();
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
fn enable_ipv6_that_contradicts_the_ranges_is_refused(
    #[case] entry: Value,
    #[case] parts: &[&str],
) {
    let error = completed(&entry, SUBNET_ENV).unwrap_err();
    for part in parts {
        assert!(error.msg.contains(part), "{error}");
    }
}

#[rstest]
#[case(json!({ "enable_ipv6": true, "pod_cidr": "10.9.0.0/24,fd00::/64" }))]
#[case(json!({ "enable_ipv6": true, "ipam": { "subnet": "fd00::/64" } }))]
#[case(json!({ "enable_ipv6": true, "ipam": { "type": "dhcp" }, "pod_cidr": "10.9.0.0/24" }))]
#[case(json!({ "enable_ipv6": false, "service_cidr": "fd00::/108", "pod_cidr": "10.9.0.0/24" }))]
fn enable_ipv6_that_fits_changes_nothing(#[case] entry: Value) {
    let conf = completed(&entry, &[]).unwrap();
    assert_eq!(conf["enable_ipv6"], entry["enable_ipv6"]);
}

#[test]
fn enable_ipv6_decides_on_the_node_s_subnets() {
    let families = |entry, variables| {
        let conf: Result<Value, Error> = completed(&entry, variables);
        conf.map(|conf| conf["ipam"]["ranges"].as_array().unwrap().len())
    };
    assert_eq!(families(json!({}), DUAL_STACK), Ok(2));
    assert_eq!(families(json!({ "enable_ipv6": true }), DUAL_STACK), Ok(2));
    assert_eq!(families(json!({ "enable_ipv6": false }), DUAL_STACK), Ok(1));
    let conf = completed(&json!({ "enable_ipv6": false }), DUAL_STACK).unwrap();
    assert_eq!(
        conf["ipam"]["ranges"],
        json!([[{ "subnet": "10.244.1.0/24" }]])
    );
    assert_eq!(conf["pod_cidr"], "10.244.0.0/16");
    let error = families(json!({ "enable_ipv6": false }), IPV6_ONLY).unwrap_err();
    assert!(error.msg.contains("HEADCNI_IPV6_SUBNET"), "{error}");
}

#[test]
fn a_strict_status_is_strict_about_leases_too() {
    let of = |entry: Value| completed(&entry, SUBNET_ENV).unwrap()["ipam"]["status_strict"].clone();
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
fn a_member_of_a_chain_is_named_by_its_path() {
    let entry = json!({ "pod_cidr": "10.9.0.0/24", "ipam": { "subnet": "10.8.0.0/24" } });
    let load = |_: &Path| -> Result<SubnetEnv, SubnetEnvError> { panic!("not needed") };
    let entry = entry.as_object().unwrap();
    let mut entry = entry.clone();
    entry.insert("mtu".to_owned(), json!(1280));
    let keys = Keys::new(&entry, "plugins[1]");
    let error = complete(keys, &Map::new(), Path::new("/x"), &load).unwrap_err();
    let error = error.into_error();
    for part in [
        "plugins[1].ipam.subnet 10.8.0.0/24",
        "plugins[1].pod_cidr 10.9.0.0/24",
    ] {
        assert!(error.msg.contains(part), "{error}");
    }
}
