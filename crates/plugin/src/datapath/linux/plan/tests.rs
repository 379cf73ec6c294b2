use cni::{CniArgs, ContainerId, IfName, Version};
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

fn planned(conf: NativeConf, leased: Value) -> Result<PodNetwork, Error> {
    let conf = NativeConf { mtu: 1280, ..conf };
    let leased = NetResult::from_json(leased, Version::LATEST).unwrap();
    PodNetwork::plan(&attachment("box", "eth0"), &conf, leased)
}

fn one_address() -> Value {
    json!({ "ips": [{ "address": "10.9.0.2/24", "gateway": "10.9.0.1" }] })
}

/// Each route as `destination via next hop`.
fn routes(network: &PodNetwork) -> Vec<String> {
    let routes = network.routes.iter();
    routes
        .map(|route| format!("{} via {}", route.stated.dst, route.next_hop))
        .collect()
}

#[test]
fn host_names_are_unique_per_container_and_interface_and_stable() {
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
    // A DEL of a newer version has to find the links of an older one.
    assert_eq!(names[0], "hc0a5eea50ce3");
}

#[test]
fn without_routes_of_ipam_there_is_a_default_route_per_family() {
    let network = planned(
        NativeConf::default(),
        json!({ "ips": [
            { "address": "10.9.0.2/24", "gateway": "10.9.0.1" },
            { "address": "10.8.0.2/24", "gateway": "10.8.0.1" },
            { "address": "fd00::2/64", "gateway": "fd00::1" }
        ] }),
    )
    .unwrap();
    assert_eq!(
        routes(&network),
        ["0.0.0.0/0 via 10.9.0.1", "::/0 via fd00::1"]
    );
    let hops: Vec<String> = network.next_hops().iter().map(IpAddr::to_string).collect();
    assert_eq!(hops, ["10.9.0.1", "10.8.0.1", "fd00::1"]);
}

#[test]
fn routes_of_ipam_replace_the_default_routes() {
    let mut leased = one_address();
    leased["routes"] = json!([
        { "dst": "10.0.0.0/8" }, { "dst": "192.168.0.0/16", "gw": "10.9.0.7" }
    ]);
    let network = planned(NativeConf::default(), leased.clone()).unwrap();
    assert_eq!(
        routes(&network),
        ["10.0.0.0/8 via 10.9.0.1", "192.168.0.0/16 via 10.9.0.7"]
    );
    leased["routes"] = json!([{ "dst": "192.168.0.0/16" }]);
    let network = planned(NativeConf::default(), leased).unwrap();
    assert_eq!(
        routes(&network),
        ["192.168.0.0/16 via 10.9.0.1", "10.9.0.0/24 via 10.9.0.1"]
    );
    let result = network.result("/ns", RouteTable::Main, None);
    assert_eq!(result.routes.len(), 1, "the result has the routes of IPAM");
}

#[test]
fn an_address_without_gateway_uses_a_link_local_next_hop() {
    let leased = json!({ "ips": [{ "address": "10.9.0.2/32" }, { "address": "fd00::2/128" }] });
    let network = planned(NativeConf::default(), leased).unwrap();
    assert_eq!(
        routes(&network),
        ["0.0.0.0/0 via 169.254.1.1", "::/0 via fe80::1"]
    );
    assert_eq!(
        network.gateways().count(),
        0,
        "the node needs no such address"
    );
}

#[rstest]
#[case("10.244.1.5/24", "0a:58:0a:f4:01:05")]
#[case("fd00::5/64", "0a:58:fd:00:00:05")]
fn the_hardware_address_is_derived_from_the_ip(#[case] address: &str, #[case] mac: &str) {
    let network = planned(
        NativeConf::default(),
        json!({ "ips": [{ "address": address }] }),
    )
    .unwrap();
    assert_eq!(network.pod_mac.to_string(), mac);
    assert_ne!(network.host_mac, network.pod_mac);
}

#[test]
fn a_requested_hardware_address_is_used() {
    let conf = NativeConf {
        mac: Some("02:11:22:33:44:55".parse().unwrap()),
        ..NativeConf::default()
    };
    let network = planned(conf, one_address()).unwrap();
    assert_eq!(network.pod_mac.to_string(), "02:11:22:33:44:55");
}

#[test]
fn leases_that_contradict_the_configuration_are_rejected() {
    let error = planned(NativeConf::default(), json!({})).unwrap_err();
    assert!(error.msg.contains("no address"), "{error}");
    let leased = json!({ "ips": [{ "address": "fd00::2/64" }] });
    let conf = NativeConf {
        enable_ipv6: Some(false),
        ..NativeConf::default()
    };
    let error = planned(conf, leased).unwrap_err();
    assert!(error.msg.contains("enable_ipv6"), "{error}");
}

#[test]
fn interface_indexes_differ_between_tries_and_ends() {
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
fn the_result_extends_the_previous_one() {
    let before = json!({ "interfaces": [{ "name": "eth0", "sandbox": "/ns" }],
        "ips": [{ "interface": 0, "address": "1.2.3.4/8" }], "dns": { "nameservers": ["9.9.9.9"] } });
    let before = NetResult::from_json(before, Version::LATEST).unwrap();
    let network = planned(NativeConf::default(), one_address()).unwrap();
    let result = network.result("/ns", RouteTable::Own(7), Some(before));
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
fn route_attributes_reach_the_kernel(
    #[case] route: Value,
    #[case] wanted: (Option<u32>, Option<u32>, Option<u32>, u32, Option<u8>),
) {
    let mut leased = one_address();
    leased["routes"] = json!([route]);
    let network = planned(NativeConf::default(), leased).unwrap();
    let route = network.routes[0].to_kernel(5, 104);
    let found = (
        route.mtu,
        route.advmss,
        route.metric,
        route.table,
        route.scope,
    );
    assert_eq!(found, wanted);
}
