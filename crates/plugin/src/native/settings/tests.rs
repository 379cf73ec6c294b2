use rstest::rstest;
use serde_json::{Value, json};

use super::*;

const SEED: &str = include_str!("../conf/seed_001.json");

fn parsed(conf: &Value, args: &str) -> Result<Settings, Error> {
    let mut conf = conf.as_object().unwrap().clone();
    conf.entry("mtu").or_insert(json!(1280));
    Settings::parse(Keys::new(&conf, ""), &CniArgs::parse(args).unwrap())
}

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn the_user_s_document_is_understood() {
    let seed: Value = serde_json::from_str(SEED).unwrap();
    let settings = parsed(&seed, "IgnoreUnknown=1;K8S_POD_NAME=web").unwrap();
    assert_eq!(settings.mtu_bytes, 1280);
    assert_eq!(settings.mac, None);
    assert_eq!(settings.ports, Ports::default());
    assert_eq!((settings.to_pod, settings.from_pod), (None, None));
    assert_eq!(settings.exempt, nets(&["10.244.0.0/24", "10.96.0.0/16"]));
    assert_eq!(settings.allows_ipv6, Some(false));
    assert!(!settings.is_status_strict);
    let socket = PathBuf::from("/var/run/tailscale/tailscaled.sock");
    assert_eq!(settings.tailscale_socket, Some(socket));
    assert_eq!(settings.notes.len(), 1);
    assert!(settings.notes[0].contains("NetworkPolicy is not enforced"));
}

#[test]
fn what_is_not_said_is_not_there() {
    let settings = parsed(
        &json!({ "tailscale_socket": "", "enable_network_policy": false }),
        "",
    );
    let settings = settings.unwrap();
    assert_eq!(settings.tailscale_socket, None);
    assert_eq!(settings.allows_ipv6, None);
    assert!(settings.notes.is_empty() && settings.exempt.is_empty());
    assert!(settings.guarded.is_empty());
    let strict = parsed(&json!({ "status_strict": true }), "").unwrap();
    assert!(strict.is_status_strict);
    let guarded = json!({ "guard_pod_cidr": true, "pod_cidr": "10.244.0.0/16", "service_cidr": "10.96.0.0/16" });
    let guarded = parsed(&guarded, "").unwrap().guarded;
    assert_eq!(guarded, nets(&["10.244.0.0/16"]));
    let empty = Map::new();
    let error = Settings::parse(Keys::new(&empty, ""), &CniArgs::default()).unwrap_err();
    assert!(error.msg.contains("mtu"), "{error}");
}

#[rstest]
#[case::pod_cidr(json!({ "pod_cidr": "10.244.0.0/16,fd00::/48", "service_cidr": "10.96.0.0/16",
    "ipam": { "type": "headcni-ipam", "subnet": "10.244.1.0/24" } }),
    &["10.244.0.0/16", "fd00::/48", "10.96.0.0/16"])]
#[case::several_networks_of_the_cluster(json!({ "pod_cidr": "10.244.0.0/16,10.245.0.0/16" }),
    &["10.244.0.0/16", "10.245.0.0/16"])]
#[case::ranges(json!({ "ipam": { "type": "host-local", "subnet": "10.9.0.0/24",
    "ranges": [[{ "subnet": "fd00::/64" }]] } }), &["10.9.0.0/24", "fd00::/64"])]
#[case::ranges_of_the_runtime(json!({ "ipam": { "type": "headcni-ipam" },
    "runtimeConfig": { "ipRanges": [[{ "subnet": "10.9.0.0/24" }]] } }), &["10.9.0.0/24"])]
#[case::others_know_by_themselves(json!({ "ipam": { "type": "dhcp", "subnet": "x" } }), &[])]
fn pods_and_services_are_exempt(#[case] conf: Value, #[case] exempt: &[&str]) {
    assert_eq!(parsed(&conf, "").unwrap().exempt, nets(exempt));
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
fn a_mac_is_asked_for_in_three_places(
    #[case] conf: Value,
    #[case] args: &str,
    #[case] mac: Option<&str>,
) {
    let given = parsed(&conf, args).unwrap().mac;
    assert_eq!(given.map(|mac| mac.to_string()).as_deref(), mac);
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
fn a_mac_that_can_t_be_given_is_refused(
    #[case] conf: Value,
    #[case] args: &str,
    #[case] parts: &[&str],
) {
    let error = parsed(&conf, args).unwrap_err();
    assert_eq!(error.code, cni::code::INVALID_CONFIG);
    for part in parts {
        assert!(error.msg.contains(part), "{error}");
    }
}

#[rstest]
#[case(json!({ "mtu": 5 }), "mtu")]
#[case(json!({ "service_cidr": "x" }), "service_cidr")]
#[case(json!({ "pod_cidr": "x" }), "pod_cidr")]
#[case(json!({ "status_strict": "x" }), "status_strict")]
#[case(json!({ "runtimeConfig": [] }), "runtimeConfig")]
#[case(json!({ "runtimeConfig": { "bandwidth": { "ingressRate": -1 } } }), "ingressRate")]
#[case(json!({ "runtimeConfig": { "portMappings": {} } }), "portMappings")]
fn a_wrong_value_is_refused_by_key(#[case] conf: Value, #[case] part: &str) {
    let error = parsed(&conf, "").unwrap_err();
    assert!(error.msg.contains(part), "{error}");
}
