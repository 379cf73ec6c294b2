use cni::{CniArgs, ContainerId, IfName, Keys, Version};
use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn attachment(container: &str, ifname: &str) -> Attachment {
    Attachment {
        container: ContainerId::new(container).unwrap(),
        ifname: IfName::new(ifname).unwrap(),
        netns: Some("/run/netns/x".to_owned()),
        args: CniArgs::default(),
    }
}

fn wired(conf: &Value, leased: Value) -> Result<Wiring, Error> {
    let mut conf = conf.clone();
    conf["mtu"] = json!(1280);
    let keys = Keys::new(conf.as_object().unwrap(), "");
    let settings = Settings::parse(keys, &CniArgs::default()).unwrap();
    let leased = NetResult::from_json(leased, Version::LATEST).unwrap();
    Wiring::new(&attachment("box", "eth0"), &settings, leased)
}

fn one_address() -> Value {
    json!({ "ips": [{ "address": "10.9.0.2/24", "gateway": "10.9.0.1" }] })
}

/// Each route as `destination by next hop`.
fn routes(wiring: &Wiring) -> Vec<String> {
    let routes = wiring.routes.iter();
    routes
        .map(|route| format!("{} by {}", route.stated.dst, route.next_hop))
        .collect()
}

#[test]
fn names_differ_with_container_and_interface_and_stay() {
    let names: Vec<String> = [("a", "eth0"), ("a", "eth1"), ("b", "eth0"), ("ae", "th0")]
        .map(|(container, ifname)| {
            let of = attachment(container, ifname);
            link::host_name(&of.container, &of.ifname)
        })
        .to_vec();
    for (index, name) in names.iter().enumerate() {
        assert_eq!(name.len(), 13, "{name}");
        assert!(name.starts_with("hc"), "{name}");
        assert!(!names[..index].contains(name), "{names:?}");
    }
    // A DEL by a newer version has to find what an older one made.
    assert_eq!(names[0], "hc0a5eea50ce3");
}

#[test]
fn a_pod_without_routes_has_a_default_one_per_family() {
    let wiring = wired(
        &json!({}),
        json!({ "ips": [
            { "address": "10.9.0.2/24", "gateway": "10.9.0.1" },
            { "address": "10.8.0.2/24", "gateway": "10.8.0.1" },
            { "address": "fd00::2/64", "gateway": "fd00::1" }
        ] }),
    )
    .unwrap();
    assert_eq!(
        routes(&wiring),
        ["0.0.0.0/0 by 10.9.0.1", "::/0 by fd00::1"]
    );
    let hops: Vec<String> = wiring.next_hops().iter().map(IpAddr::to_string).collect();
    assert_eq!(hops, ["10.9.0.1", "10.8.0.1", "fd00::1"]);
}

#[test]
fn stated_routes_are_all_there_is_beside_the_own_subnet() {
    let mut leased = one_address();
    leased["routes"] = json!([
        { "dst": "10.0.0.0/8" }, { "dst": "192.168.0.0/16", "gw": "10.9.0.7" }
    ]);
    let wiring = wired(&json!({}), leased.clone()).unwrap();
    assert_eq!(
        routes(&wiring),
        ["10.0.0.0/8 by 10.9.0.1", "192.168.0.0/16 by 10.9.0.7"]
    );
    leased["routes"] = json!([{ "dst": "192.168.0.0/16" }]);
    let wiring = wired(&json!({}), leased).unwrap();
    assert_eq!(
        routes(&wiring),
        ["192.168.0.0/16 by 10.9.0.1", "10.9.0.0/24 by 10.9.0.1"]
    );
    let result = wiring.result("/ns", Place::First, None);
    assert_eq!(result.routes.len(), 1, "the answer has what IPAM said");
}

#[test]
fn an_address_without_a_gateway_gets_one_that_nobody_has() {
    let leased = json!({ "ips": [{ "address": "10.9.0.2/32" }, { "address": "fd00::2/128" }] });
    let wiring = wired(&json!({}), leased).unwrap();
    assert_eq!(
        routes(&wiring),
        ["0.0.0.0/0 by 169.254.1.1", "::/0 by fe80::1"]
    );
    assert_eq!(
        wiring.gateways().count(),
        0,
        "the node needs no such address"
    );
}

#[rstest]
#[case("10.244.1.5/24", "0a:58:0a:f4:01:05")]
#[case("fd00::5/64", "0a:58:fd:00:00:05")]
fn the_hardware_address_follows_from_the_address(#[case] address: &str, #[case] mac: &str) {
    let wiring = wired(&json!({}), json!({ "ips": [{ "address": address }] })).unwrap();
    assert_eq!(wiring.pod_mac.to_string(), mac);
    assert_ne!(wiring.host_mac, wiring.pod_mac);
}

#[test]
fn a_hardware_address_can_be_asked_for() {
    let conf = json!({ "runtimeConfig": { "mac": "02:11:22:33:44:55" } });
    let wiring = wired(&conf, one_address()).unwrap();
    assert_eq!(wiring.pod_mac.to_string(), "02:11:22:33:44:55");
}

#[test]
fn what_contradicts_the_configuration_is_refused() {
    let error = wired(&json!({}), json!({})).unwrap_err();
    assert!(error.msg.contains("no address"), "{error}");
    let leased = json!({ "ips": [{ "address": "fd00::2/64" }] });
    let error = wired(&json!({ "enable_ipv6": false }), leased).unwrap_err();
    assert!(error.msg.contains("enable_ipv6"), "{error}");
}

#[test]
fn interface_numbers_differ_between_draws_and_ends() {
    let to = attachment("box", "eth0");
    let mut seen = Vec::new();
    for attempt in 0..8 {
        let (host, pod) = indexes(&to, attempt);
        for index in [host, pod] {
            assert!(is_index(index) && index < 1 << 31, "{index}");
            assert!(!seen.contains(&index), "{seen:?}");
            seen.push(index);
        }
    }
}

#[test]
fn the_answer_goes_on_from_what_was_there_before() {
    let before = json!({ "interfaces": [{ "name": "eth0", "sandbox": "/ns" }],
        "ips": [{ "interface": 0, "address": "1.2.3.4/8" }], "dns": { "nameservers": ["9.9.9.9"] } });
    let before = NetResult::from_json(before, Version::LATEST).unwrap();
    let wiring = wired(&json!({}), one_address()).unwrap();
    let result = wiring.result("/ns", Place::Second { table: 7 }, Some(before));
    assert_eq!(result.interfaces.len(), 3);
    assert_eq!(result.ips[1].interface, Some(2));
    assert_eq!(result.interfaces[2].sandbox.as_deref(), Some("/ns"));
    assert_eq!(result.routes[0].table, Some(7));
    assert_eq!(result.dns.nameservers, ["9.9.9.9"]);
}

#[rstest]
#[case(json!({ "dst": "10.0.0.0/8", "mtu": 1400, "advmss": 1300, "priority": 50, "table": 9 }),
    (Some(1400), Some(1300), Some(50), 9, None))]
#[case(json!({ "dst": "10.0.0.0/8", "scope": 200 }), (None, None, None, 254, Some(200)))]
#[case(json!({ "dst": "10.0.0.0/8", "scope": 253 }), (None, None, None, 254, None))]
fn what_is_said_of_a_route_reaches_the_kernel(
    #[case] route: Value,
    #[case] wanted: (Option<u32>, Option<u32>, Option<u32>, u32, Option<u8>),
) {
    let mut leased = one_address();
    leased["routes"] = json!([route]);
    let wiring = wired(&json!({}), leased).unwrap();
    let route = wiring.routes[0].to_kernel(5, 104);
    let found = (
        route.mtu,
        route.advmss,
        route.metric,
        route.table,
        route.scope,
    );
    assert_eq!(found, wanted);
}
