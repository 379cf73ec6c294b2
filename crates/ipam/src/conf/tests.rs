use rstest::rstest;
use serde_json::json;

use super::*;

fn parse(conf: &Value, args: &str) -> Result<IpamConf, Error> {
    let mut whole = json!({ "cniVersion": "1.0.0", "name": "net" });
    whole
        .as_object_mut()
        .unwrap()
        .extend(conf.as_object().unwrap().clone());
    let conf = NetConf::parse(whole.to_string().as_bytes())?;
    IpamConf::store(&conf)?;
    IpamConf::parse(&conf, &CniArgs::parse(args)?)
}

#[test]
fn range_sets_of_all_three_sources_are_combined_in_order() {
    let conf = parse(
        &json!({
            "runtimeConfig": { "ipRanges": [[{ "subnet": "10.3.0.0/24" }]] },
            "ipam": {
                "subnet": "10.1.0.0/24", "rangeStart": "10.1.0.10", "gateway": "10.1.0.254",
                "ranges": [[{ "subnet": "10.2.0.0/24" }, { "subnet": "10.4.0.0/24" }],
                           [{ "subnet": "fd00::/64" }]]
            }
        }),
        "",
    )
    .unwrap();
    let firsts: Vec<String> = conf
        .sets
        .iter()
        .map(|set| set.ranges()[0].subnet().to_string())
        .collect();
    assert_eq!(
        firsts,
        ["10.3.0.0/24", "10.1.0.0/24", "10.2.0.0/24", "fd00::/64"]
    );
    assert_eq!(conf.sets[2].ranges().len(), 2);
    assert_eq!(conf.sets[1].ranges()[0].gateway().to_string(), "10.1.0.254");
    assert_eq!(conf.strategy, AllocationStrategy::Sequential);
}

#[test]
fn addresses_can_be_requested_in_three_ways() {
    let conf = json!({
        "args": { "cni": { "ips": ["10.1.0.6/24"] } },
        "runtimeConfig": { "ips": ["fd00::7", "10.1.0.5"] },
        "ipam": { "subnet": "10.1.0.0/24" }
    });
    let requested = parse(&conf, "IgnoreUnknown=1;IP=10.1.0.5")
        .unwrap()
        .requested;
    let requested: Vec<String> = requested.iter().map(ToString::to_string).collect();
    assert_eq!(requested, ["10.1.0.5", "10.1.0.6", "fd00::7"]);
}

#[rstest]
#[case(json!({}), &["ipam"])]
#[case(json!({ "ipam": [] }), &["ipam", "[]"])]
#[case(json!({ "ipam": {} }), &["subnet", "ranges"])]
#[case(json!({ "ipam": { "ranges": [] } }), &["subnet", "ranges"])]
#[case(json!({ "ipam": { "ranges": [[]] } }), &["ipam.ranges[0]", "empty"])]
#[case(json!({ "ipam": { "ranges": [{}] } }), &["ipam.ranges"])]
#[case(json!({ "ipam": { "ranges": [[{ "gateway": "10.1.0.1" }]] } }), &["ipam.ranges[0][0].subnet"])]
#[case(json!({ "ipam": { "subnet": "10.1.0.0" } }), &["ipam.subnet", "10.1.0.0"])]
#[case(json!({ "ipam": { "subnet": "10.1.0.0/31" } }), &["10.1.0.0/31", "/30"])]
#[case(json!({ "ipam": { "subnet": "10.1.0.5/24" } }), &["10.1.0.5/24", "10.1.0.0/24"])]
#[case(json!({ "ipam": { "subnet": "10.1.0.0/24", "gateway": "10.2.0.1" } }), &["gateway 10.2.0.1"])]
#[case(json!({ "ipam": { "subnet": "10.1.0.0/24", "gateway": "gw" } }), &["ipam.gateway", "gw"])]
#[case(json!({ "ipam": { "subnet": "10.1.0.0/24", "rangeStart": "10.1.0.9", "rangeEnd": "10.1.0.8" } }),
       &["10.1.0.9", "10.1.0.8"])]
#[case(json!({ "ipam": { "subnet": "10.1.0.0/24", "ranges": [[{ "subnet": "10.1.0.0/16" }]] } }),
       &["overlap", "10.1.0.0/24", "10.1.0.0/16"])]
#[case(json!({ "ipam": { "subnet": "10.1.0.0/24", "allocation_strategy": "best" } }), &["best"])]
#[case(json!({ "ipam": { "subnet": "10.1.0.0/24", "dataDir": "x" } }), &["ipam.dataDir", "x"])]
#[case(json!({ "ipam": { "subnet": "10.1.0.0/24", "lock_timeout_seconds": 0 } }), &["lock_timeout"])]
#[case(json!({ "ipam": { "subnet": "10.1.0.0/24", "routes": [{ "dst": "x" }] } }), &["ipam.routes", "x"])]
#[case(json!({ "ipam": { "subnet": "10.1.0.0/24" }, "runtimeConfig": { "ips": ["x"] } }),
       &["runtimeConfig.ips", "x"])]
#[case(json!({ "cniVersion": "0.2.0",
               "ipam": { "ranges": [[{ "subnet": "10.1.0.0/24" }], [{ "subnet": "10.2.0.0/24" }]] } }),
       &["0.2.0"])]
#[case(json!({ "ipam": { "ranges": [[{ "subnet": "10.2.0.0/24" }, { "subnet": "10.2.0.128/25" }]] } }),
       &["10.2.0.0/24", "10.2.0.128/25"])]
#[case(json!({ "ipam": { "ranges": [[{ "subnet": "10.2.0.0/24" }, { "subnet": "fd00::/64" }]] } }),
       &["fd00::"])]
#[case(json!({ "ipam": { "ranges": "10.2.0.0/24" } }), &["ipam.ranges"])]
#[case(json!({ "ipam": { "subnet": 10 } }), &["ipam.subnet"])]
#[case(json!({ "ipam": { "subnet": "10.1.0.0/32" } }), &["10.1.0.0/32", "/30"])]
#[case(json!({ "ipam": { "subnet": "fd00::/127" } }), &["fd00::/127", "/126"])]
#[case(json!({ "ipam": { "subnet": "10.1.0.0/24", "gateway": "fd00::1" } }), &["fd00::1", "10.1.0.0/24"])]
#[case(json!({ "ipam": { "subnet": "10.1.0.0/24", "rangeStart": "10.3.0.9" } }), &["10.3.0.9", "10.1.0.0/24"])]
#[case(json!({ "ipam": { "subnet": "10.1.0.0/24", "rangeEnd": "10.3.0.9" } }), &["10.3.0.9", "10.1.0.0/24"])]
#[case(json!({ "ipam": { "subnet": "10.1.0.0/24", "rangeStart": "10.1.0.1", "rangeEnd": "10.1.0.1" } }),
       &["10.1.0.1"])]
#[case(json!({ "ipam": { "subnet": "10.1.0.0/24", "routes": [{ "gw": "10.1.0.1" }] } }),
       &["ipam.routes", "dst"])]
#[case(json!({ "ipam": { "subnet": "10.1.0.0/24", "status_strict": "yes" } }), &["ipam.status_strict"])]
fn an_invalid_value_is_refused_with_its_key_and_value(#[case] conf: Value, #[case] parts: &[&str]) {
    let error = parse(&conf, "").unwrap_err();
    assert_eq!(error.code, cni::code::INVALID_CONFIG, "{error}");
    for part in parts {
        assert!(error.msg.contains(part), "{part} is not in {error}");
    }
}
