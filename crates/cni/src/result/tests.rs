use proptest::prelude::*;
use rstest::rstest;
use serde_json::json;

use super::*;

/// A dual-stack result with everything that version 1.1.0 can say.
fn full() -> Value {
    json!({
        "cniVersion": "1.1.0",
        "interfaces": [
            { "name": "cni0", "mac": "02:00:00:00:00:01", "mtu": 1280 },
            { "name": "eth0", "mac": "02:00:00:00:00:02", "mtu": 1280, "sandbox": "/run/netns/a",
              "pciID": "8086:9a01", "socketPath": "/run/vhost", "vendor": { "x": [1, 2.5] } }
        ],
        "ips": [
            { "interface": 1, "address": "10.1.0.5/24", "gateway": "10.1.0.1" },
            { "interface": 1, "address": "fd00::5/64", "gateway": "fd00::1" },
            { "interface": 1, "address": "10.2.0.5/24" }
        ],
        "routes": [
            { "dst": "0.0.0.0/0", "gw": "10.1.0.1", "mtu": 1200, "advmss": 1160, "priority": 5,
              "table": 100, "scope": 0 },
            { "dst": "::/0" }
        ],
        "dns": { "nameservers": ["10.0.0.10"], "domain": "x.test", "search": ["a", "b"],
                 "options": ["ndots:5"] },
        "vendor.example/key": { "kept": true }
    })
}

fn parse(document: Value) -> NetResult {
    NetResult::from_json(document, Version::V1_0_0).unwrap()
}

#[test]
fn the_newest_version_survives_a_round_trip_whole() {
    assert_eq!(parse(full()).to_json(Version::V1_1_0), full());
}

#[test]
fn version_1_0_0_lacks_what_1_1_0_added() {
    let written = parse(full()).to_json(Version::V1_0_0);
    assert_eq!(written["cniVersion"], "1.0.0");
    assert_eq!(
        written["interfaces"][0],
        json!({ "name": "cni0", "mac": "02:00:00:00:00:01" })
    );
    assert_eq!(written["interfaces"][1]["vendor"], json!({ "x": [1, 2.5] }));
    assert_eq!(
        written["routes"][0],
        json!({ "dst": "0.0.0.0/0", "gw": "10.1.0.1" })
    );
    assert!(written["ips"][0].get("version").is_none());
}

#[rstest]
#[case(Version::V0_3_0)]
#[case(Version::V0_3_1)]
#[case(Version::V0_4_0)]
fn versions_0_3_0_to_0_4_0_name_the_family_of_each_address(#[case] version: Version) {
    let written = parse(full()).to_json(version);
    assert_eq!(written["cniVersion"], version.as_str());
    let families: Vec<_> = (0..3)
        .map(|i| written["ips"][i]["version"].clone())
        .collect();
    assert_eq!(families, ["4", "6", "4"]);
    assert_eq!(written["ips"][0]["interface"], 1);
    assert_eq!(parse(written.clone()).to_json(version), written);
}

#[rstest]
#[case(Version::V0_1_0)]
#[case(Version::V0_2_0)]
fn the_oldest_versions_have_one_address_per_family(#[case] version: Version) {
    let written = parse(full()).to_json(version);
    assert_eq!(
        written,
        json!({
            "cniVersion": version.as_str(),
            "ip4": { "ip": "10.1.0.5/24", "gateway": "10.1.0.1",
                     "routes": [{ "dst": "0.0.0.0/0", "gw": "10.1.0.1" }] },
            "ip6": { "ip": "fd00::5/64", "gateway": "fd00::1", "routes": [{ "dst": "::/0" }] },
            "dns": { "nameservers": ["10.0.0.10"], "domain": "x.test", "search": ["a", "b"],
                     "options": ["ndots:5"] },
            "vendor.example/key": { "kept": true }
        })
    );
    assert_eq!(parse(written.clone()).to_json(version), written);
}

#[test]
fn an_old_result_becomes_a_new_one() {
    let old = json!({ "cniVersion": "0.2.0", "ip4": { "ip": "10.1.0.5/24", "gateway": "10.1.0.1",
        "routes": [{ "dst": "10.9.0.0/16" }] } });
    assert_eq!(
        parse(old).to_json(Version::V1_1_0),
        json!({ "cniVersion": "1.1.0", "ips": [{ "address": "10.1.0.5/24", "gateway": "10.1.0.1" }],
                "routes": [{ "dst": "10.9.0.0/16" }] })
    );
}

#[test]
fn a_result_without_a_version_is_of_the_version_asked_for() {
    let bare = json!({ "ip4": { "ip": "10.1.0.5/24" } });
    let result = NetResult::from_json(bare, Version::V0_2_0).unwrap();
    assert_eq!(result.ips.len(), 1);
}

#[test]
fn what_go_writes_for_absent_values_is_read_as_absent() {
    let result = parse(
        json!({ "cniVersion": "1.0.0", "interfaces": null, "routes": null,
        "ips": [{ "address": "10.1.0.5/24", "gateway": "" }], "dns": {} }),
    );
    assert_eq!(result.ips[0].gateway, None);
}

#[rstest]
#[case(json!("text"))]
#[case(json!({ "cniVersion": "7.0.0" }))]
#[case(json!({ "cniVersion": 1 }))]
#[case(json!({ "cniVersion": "1.0.0", "ips": [{ "address": "10.1.0.5" }] }))]
#[case(json!({ "cniVersion": "1.0.0", "ips": [{ "address": "10.1.0.5/33" }] }))]
#[case(json!({ "cniVersion": "1.0.0", "ips": "none" }))]
#[case(json!({ "cniVersion": "1.0.0", "routes": [{ "dst": "0.0.0.0/0", "gw": "me" }] }))]
fn what_is_not_a_result_is_refused(#[case] document: Value) {
    assert!(NetResult::from_json(document, Version::V1_0_0).is_err());
}

fn any_net() -> impl Strategy<Value = IpNet> {
    prop_oneof![
        (any::<u32>(), 0..=32_u8)
            .prop_map(|(bits, len)| { IpNet::new(IpAddr::from(bits.to_be_bytes()), len).unwrap() }),
        (any::<u128>(), 0..=128_u8)
            .prop_map(|(bits, len)| { IpNet::new(IpAddr::from(bits.to_be_bytes()), len).unwrap() }),
    ]
}

proptest! {
    #[test]
    fn addresses_and_routes_survive_every_version_that_can_hold_them(
        ips in prop::collection::vec(any_net(), 0..4),
        routes in prop::collection::vec((any_net(), any::<Option<u32>>()), 0..4),
    ) {
        let result = NetResult {
            ips: ips.into_iter().map(|address| IpConfig {
                interface: None, address, gateway: Some(address.addr()), extra: Map::new(),
            }).collect(),
            routes: routes.into_iter().map(|(dst, mtu)| Route { mtu, ..Route::to(dst) }).collect(),
            ..NetResult::default()
        };
        prop_assert_eq!(&parse(result.to_json(Version::V1_1_0)), &result);
        for version in Version::ALL {
            let once = parse(result.to_json(version));
            prop_assert_eq!(&parse(once.to_json(version)), &once);
            if version >= Version::V0_3_0 {
                prop_assert_eq!(&once.ips, &result.ips);
            }
        }
    }
}
