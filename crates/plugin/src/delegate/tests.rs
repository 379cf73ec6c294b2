use std::cell::Cell;

use rstest::rstest;

use super::*;

const SUBNET_ENV: &[(&str, &str)] = &[
    ("HEADCNI_NETWORK", "10.244.0.0/16"),
    ("HEADCNI_SUBNET", "10.244.1.1/24"),
    ("HEADCNI_MTU", "1280"),
    ("HEADCNI_IPMASQ", "true"),
];

const DUAL_STACK: &[(&str, &str)] = &[
    ("HEADCNI_NETWORK", "10.244.0.0/16"),
    ("HEADCNI_SUBNET", "10.244.1.0/24"),
    ("HEADCNI_IPV6_NETWORK", "fd00::/48"),
    ("HEADCNI_IPV6_SUBNET", "fd00:0:0:1::1/64"),
    ("HEADCNI_MTU", "1280"),
    ("HEADCNI_IPMASQ", "false"),
];

/// Completes `delegate` within `entry`. No variables: as if there were no subnet file.
fn completed(
    entry: &Value,
    delegate: &Value,
    variables: &[(&str, &str)],
) -> Result<(PluginType, Value), Error> {
    let entry = entry.as_object().unwrap();
    let load = |file: &Path| {
        SubnetEnv::load(file, |key| {
            variables
                .iter()
                .find(|(name, _)| *name == key)
                .map(|(_, value)| (*value).to_owned())
        })
    };
    let file = Path::new("/nonexistent/subnet.env");
    let none = Map::new();
    let runtime_config = entry
        .get("runtimeConfig")
        .and_then(Value::as_object)
        .unwrap_or(&none);
    let keys = Keys::new(entry, "");
    complete(
        keys,
        delegate.as_object().unwrap(),
        runtime_config,
        file,
        &load,
    )
    .map(|(kind, conf)| (kind, Value::Object(conf)))
    .map_err(CompleteError::into_error)
}

#[test]
fn an_empty_delegate_becomes_a_complete_bridge() {
    let (kind, conf) = completed(&json!({}), &json!({}), SUBNET_ENV).unwrap();
    assert_eq!(kind.as_str(), "bridge");
    assert_eq!(
        conf,
        json!({
            "type": "bridge",
            "mtu": 1280,
            "ipMasq": false,
            "isGateway": true,
            "ipam": {
                "type": "host-local",
                "ranges": [[{ "subnet": "10.244.1.0/24", "gateway": "10.244.1.1" }]],
                "routes": [{ "dst": "10.244.0.0/16" }, { "dst": "0.0.0.0/0" }]
            }
        })
    );
}

#[test]
fn dual_stack_has_a_range_set_per_family() {
    let (_, conf) = completed(&json!({}), &json!({}), DUAL_STACK).unwrap();
    assert_eq!(
        conf["ipam"]["ranges"],
        json!([
            [{ "subnet": "10.244.1.0/24" }],
            [{ "subnet": "fd00:0:0:1::/64", "gateway": "fd00:0:0:1::1" }]
        ])
    );
    let routes = json!(["10.244.0.0/16", "0.0.0.0/0", "fd00::/48", "::/0"]);
    let given: Value = conf["ipam"]["routes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["dst"].clone())
        .collect();
    assert_eq!(given, routes);
    assert_eq!(
        conf["ipMasq"], true,
        "the node does not masquerade, so the delegate must"
    );
}

#[test]
fn explicit_values_of_the_delegate_win() {
    let delegate = json!({ "type": "bridge", "bridge": "br7", "mtu": 1400, "ipMasq": true,
        "isGateway": false, "vendor": { "deep": [1] },
        "ipam": { "type": "host-local", "subnet": "10.9.0.0/24" } });
    let (_, conf) = completed(&json!({}), &delegate, SUBNET_ENV).unwrap();
    assert_eq!(conf, delegate);
}

#[test]
fn is_default_gateway_suppresses_our_default_route() {
    for decision in [true, false] {
        let delegate = json!({ "isDefaultGateway": decision });
        let (_, conf) = completed(&json!({}), &delegate, SUBNET_ENV).unwrap();
        assert_eq!(conf["ipam"]["routes"], json!([{ "dst": "10.244.0.0/16" }]));
    }
}

#[test]
fn the_configured_ipam_is_completed() {
    let entry = json!({ "ipam": { "type": "headcni-ipam", "dataDir": "/x",
        "routes": [{ "dst": "10.0.0.0/8" }] } });
    let (_, conf) = completed(&entry, &json!({}), SUBNET_ENV).unwrap();
    assert_eq!(
        conf["ipam"],
        json!({ "type": "headcni-ipam", "dataDir": "/x", "routes": [{ "dst": "10.0.0.0/8" }],
                "ranges": [[{ "subnet": "10.244.1.0/24", "gateway": "10.244.1.1" }]] })
    );
}

#[test]
fn the_subnet_file_is_not_read_if_nothing_is_missing() {
    let entry = json!({ "mtu": 1400, "ipam": { "type": "host-local", "subnet": "10.9.0.0/24" } });
    let delegate = json!({ "ipMasq": false });
    let was_read = Cell::new(false);
    let load = |_: &Path| {
        was_read.set(true);
        SubnetEnv::load(Path::new("/nonexistent"), |_| None)
    };
    let entry = entry.as_object().unwrap();
    let (keys, file) = (Keys::new(entry, ""), Path::new("/x"));
    complete(
        keys,
        delegate.as_object().unwrap(),
        &Map::new(),
        file,
        &load,
    )
    .unwrap();
    assert!(!was_read.get());
}

#[rstest]
#[case(json!({ "ipam": { "type": "host-local", "subnet": "10.9.0.0/24" } }))]
#[case(json!({ "ipam": { "type": "host-local", "ranges": [[{ "subnet": "10.9.0.0/24" }]] } }))]
#[case(json!({ "ipam": { "type": "static" } }))]
#[case(json!({ "ipam": { "type": "dhcp" } }))]
#[case(json!({ "runtimeConfig": { "ipRanges": [[{ "subnet": "10.9.0.0/24" }]] } }))]
fn configured_ranges_need_no_subnet_file(#[case] entry: Value) {
    let (_, conf) = completed(&entry, &json!({}), &[]).unwrap();
    assert!(conf.get("mtu").is_none());
    assert!(conf.get("ipMasq").is_none());
}

#[rstest]
#[case(json!({}))]
#[case(json!({ "ipam": {} }))]
#[case(json!({ "ipam": { "ranges": [] } }))]
#[case(json!({ "ipam": { "subnet": null } }))]
fn missing_ranges_are_an_error_with_file_and_variable(#[case] entry: Value) {
    let error = completed(&entry, &json!({}), &[]).unwrap_err();
    assert_eq!(error.code, cni::code::INVALID_CONFIG);
    assert!(error.msg.contains("/nonexistent/subnet.env"), "{error}");
    assert!(error.msg.contains("HEADCNI_SUBNET"), "{error}");
}

#[rstest]
#[case(json!({ "mtu": 1280 }), json!({ "mtu": 1500 }), &["mtu 1280", "delegate.mtu 1500"])]
#[case(json!({ "ipam": { "subnet": "a" } }), json!({ "ipam": {} }), &["ipam", "delegate.ipam"])]
#[case(json!({ "name": "a" }), json!({ "name": "b" }), &["name \"a\"", "delegate.name \"b\""])]
#[case(json!({ "cniVersion": "1.0.0" }), json!({ "cniVersion": "0.4.0" }), &["delegate.cniVersion"])]
#[case(json!({}), json!({ "type": "headcni" }), &["delegate.type", "itself"])]
#[case(json!({}), json!({ "type": "../x" }), &["delegate.type", "../x"])]
#[case(json!({}), json!({ "type": 5 }), &["delegate.type", "5"])]
#[case(json!({ "ipam": { "type": "a/b" } }), json!({}), &["ipam.type", "a/b"])]
#[case(json!({ "ipam": "host-local" }), json!({}), &["ipam", "host-local"])]
#[case(json!({}), json!({ "ipam": [1] }), &["delegate.ipam", "[1]"])]
#[case(json!({}), json!({ "ipam": { "type": "a/b" } }), &["delegate.ipam.type", "a/b"])]
#[case(json!({}), json!({ "ipMasq": "yes" }), &["delegate.ipMasq", "yes"])]
fn contradictions_and_invalid_values_are_named(
    #[case] entry: Value,
    #[case] delegate: Value,
    #[case] parts: &[&str],
) {
    let error = completed(&entry, &delegate, SUBNET_ENV).unwrap_err();
    assert_eq!(error.code, cni::code::INVALID_CONFIG);
    for part in parts {
        assert!(error.msg.contains(part), "{part} is not in {error}");
    }
}

#[test]
fn equal_values_in_two_places_are_accepted() {
    let entry = json!({ "name": "net", "mtu": 1400 });
    let delegate = json!({ "name": "net", "mtu": 1400 });
    assert!(completed(&entry, &delegate, SUBNET_ENV).is_ok());
}

#[test]
fn unknown_keys_reach_the_delegate() {
    let entry = json!({ "type": "headcni", "vendor": 1, "dns": { "domain": "x" },
        "args": { "cni": {} }, "dataDir": "/x", "headscale_url": "https://h", "log_file": "/l",
        "cni.dev/valid-attachments": [], "bridge": "outer" });
    let (_, conf) = completed(&entry, &json!({ "bridge": "inner" }), SUBNET_ENV).unwrap();
    assert_eq!(conf["vendor"], 1);
    assert_eq!(conf["dns"], json!({ "domain": "x" }));
    assert_eq!(conf["args"], json!({ "cni": {} }));
    assert_eq!(conf["bridge"], "inner");
    for key in [
        "dataDir",
        "headscale_url",
        "log_file",
        "cni.dev/valid-attachments",
    ] {
        assert!(conf.get(key).is_none(), "{key}");
    }
}

#[test]
fn only_a_bridge_gets_is_gateway() {
    let (_, conf) = completed(&json!({}), &json!({ "type": "ptp" }), SUBNET_ENV).unwrap();
    assert!(conf.get("isGateway").is_none());
    assert_eq!(conf["mtu"], 1280);
}

#[test]
fn prev_result_replaces_a_lost_subnet_file() {
    let result = json!({ "cniVersion": "1.0.0",
        "ips": [{ "address": "fd00::5/64" }, { "address": "10.1.0.5/24" }] });
    let result = cni::NetResult::from_json(result, cni::Version::LATEST).unwrap();
    assert_eq!(
        ranges(&subnets_of(&result).unwrap()),
        json!([[{ "subnet": "10.1.0.0/24" }], [{ "subnet": "fd00::/64" }]])
    );
    assert_eq!(subnets_of(&cni::NetResult::default()), None);
}

#[test]
fn the_environment_is_used_without_a_subnet_file() {
    let entry = json!({ "ipam": { "type": "host-local", "subnet": "10.9.0.0/24" } });
    let variables = [("HEADCNI_MTU", "1400"), ("HEADCNI_IPMASQ", "true")];
    let (_, conf) = completed(&entry, &json!({}), &variables).unwrap();
    assert_eq!(
        (&conf["mtu"], &conf["ipMasq"]),
        (&json!(1400), &json!(false))
    );
    assert!(completed(&entry, &json!({}), &[("HEADCNI_MTU", "big")]).is_err());
}

#[test]
fn null_counts_as_absent() {
    let delegate = json!({ "mtu": null, "ipMasq": null, "isGateway": null, "ipam": null });
    let (_, conf) = completed(&json!({ "mtu": null }), &delegate, SUBNET_ENV).unwrap();
    let (_, plain) = completed(&json!({}), &json!({}), SUBNET_ENV).unwrap();
    assert_eq!(conf, plain);
}
