use std::path::Path;

use api::SubnetEnv;
use cni::{Env, NetConf};
use rstest::rstest;
use serde_json::json;

use super::*;

fn call(verb: Verb, extra: &Value) -> Call {
    let mut conf = json!({ "cniVersion": "1.1.0", "name": "net", "type": "headcni" });
    conf.as_object_mut()
        .unwrap()
        .extend(extra.as_object().unwrap().clone());
    Call {
        verb,
        conf: NetConf::parse(conf.to_string().as_bytes()).unwrap(),
        env: Env::default(),
    }
}

fn planned(verb: Verb, extra: &Value) -> Result<Plan, Error> {
    let call = call(verb, extra);
    let conf = Conf::parse(&call)?;
    let variables = |key: &str| {
        let value = match key {
            "HEADCNI_NETWORK" => "10.244.0.0/16",
            "HEADCNI_SUBNET" => "10.244.1.0/24",
            "HEADCNI_MTU" => "1280",
            "HEADCNI_IPMASQ" => "true",
            _ => return None,
        };
        Some(value.to_owned())
    };
    plan(&call, &conf, &|_: &Path| {
        SubnetEnv::load(Path::new("/nonexistent"), variables)
    })
    .map_err(CompleteError::into_error)
}

fn kinds(plan: &Plan) -> Vec<&str> {
    plan.steps.iter().map(|step| step.kind.as_str()).collect()
}

#[test]
fn a_chain_has_a_step_per_member_in_order() {
    let plan = planned(
        Verb::Add,
        &json!({ "plugins": [
            { "type": "headcni", "delegate": { "type": "bridge" } },
            { "type": "portmap", "kept": { "a": [1] } },
            { "type": "tuning", "name": "other", "cniVersion": "0.1.0" }
        ] }),
    )
    .unwrap();
    assert_eq!(kinds(&plan), ["bridge", "portmap", "tuning"]);
    assert_eq!(plan.steps[1].conf["kept"], json!({ "a": [1] }));
    for step in &plan.steps {
        assert_eq!(
            (&step.conf["name"], &step.conf["cniVersion"]),
            (&json!("net"), &json!("1.1.0"))
        );
    }
}

#[test]
fn each_member_sees_the_runtime_config_that_it_declares() {
    let chain = json!({
        "capabilities": { "portMappings": true, "bandwidth": true },
        "runtimeConfig": { "portMappings": [1], "bandwidth": { "a": 1 } },
        "plugins": [
            { "type": "headcni", "delegate": {} },
            { "type": "portmap", "capabilities": { "portMappings": true, "bandwidth": false } },
            { "type": "headcni", "delegate": {}, "capabilities": { "bandwidth": true } }
        ]
    });
    let plan = planned(Verb::Add, &chain).unwrap();
    let given: Vec<_> = plan
        .steps
        .iter()
        .map(|step| step.conf.get("runtimeConfig"))
        .collect();
    assert_eq!(
        given,
        [
            None,
            Some(&json!({ "portMappings": [1] })),
            Some(&json!({ "bandwidth": { "a": 1 } }))
        ]
    );
    assert!(
        plan.steps
            .iter()
            .all(|step| !step.conf.contains_key("capabilities"))
    );
    assert!(plan.warnings.is_empty(), "{:?}", plan.warnings);
}

#[test]
fn a_sole_delegate_sees_what_its_wrapper_was_given_unless_it_declares() {
    let given = |delegate: Value| {
        let conf = json!({ "runtimeConfig": { "mac": "m", "ips": [] }, "delegate": delegate });
        planned(Verb::Add, &conf).unwrap().steps[0]
            .conf
            .get("runtimeConfig")
            .cloned()
    };
    assert_eq!(given(json!({})), Some(json!({ "mac": "m", "ips": [] })));
    assert_eq!(
        given(json!({ "capabilities": { "mac": true } })),
        Some(json!({ "mac": "m" }))
    );
    assert_eq!(given(json!({ "capabilities": {} })), None);
}

#[test]
fn a_capability_that_the_outer_configuration_lacks_is_worth_a_warning() {
    let chain = json!({ "capabilities": { "bandwidth": true }, "plugins": [
        { "type": "portmap", "capabilities": { "portMappings": true, "bandwidth": true } }
    ] });
    let warnings = planned(Verb::Add, &chain).unwrap().warnings;
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].contains("plugins[0].capabilities"),
        "{}",
        warnings[0]
    );
    assert!(warnings[0].contains("portMappings"), "{}", warnings[0]);
}

#[test]
fn the_list_of_valid_attachments_goes_to_members_in_a_garbage_collection_only() {
    let chain = json!({ "cni.dev/valid-attachments": [], "plugins": [{ "type": "a" }] });
    let has_list = |verb| {
        let plan = planned(verb, &chain).unwrap();
        plan.steps[0].conf.contains_key("cni.dev/valid-attachments")
    };
    assert!(has_list(Verb::Gc));
    assert!(!has_list(Verb::Add));
}

#[test]
fn members_inherit_what_concerns_the_interface() {
    let chain = json!({ "mtu": 1400, "args": { "cni": { "x": 1 } }, "plugins": [
        { "type": "bridge" }, { "type": "tuning" }, { "type": "headcni", "delegate": {} }
    ] });
    let plan = planned(Verb::Add, &chain).unwrap();
    let mtus: Vec<_> = plan
        .steps
        .iter()
        .map(|step| step.conf.get("mtu").cloned())
        .collect();
    assert_eq!(mtus, [Some(json!(1400)), None, Some(json!(1400))]);
    assert!(
        plan.steps
            .iter()
            .all(|step| step.conf["args"] == json!({ "cni": { "x": 1 } }))
    );
}

#[rstest]
#[case(json!({ "plugins": [{}] }), &["plugins[0].type"])]
#[case(json!({ "plugins": [{ "type": "a/b" }] }), &["plugins[0].type", "a/b"])]
#[case(json!({ "plugins": [{ "type": "a", "ipam": { "type": "../x" } }] }),
       &["plugins[0].ipam.type", "../x"])]
#[case(json!({ "plugins": [{ "type": "headcni", "plugins": [] }] }), &["plugins[0].plugins"])]
#[case(json!({ "plugins": [{ "type": "headcni", "delegate": { "type": "headcni" } }] }),
       &["plugins[0].delegate.type"])]
#[case(json!({ "mtu": 1280, "plugins": [{ "type": "bridge", "mtu": 1500 }] }),
       &["mtu 1280", "plugins[0].mtu 1500"])]
#[case(json!({ "plugins": [{ "type": "a", "capabilities": [] }] }), &["plugins[0].capabilities"])]
#[case(json!({ "runtimeConfig": [], "plugins": [{ "type": "a" }] }), &["runtimeConfig"])]
#[case(json!({ "subnetFile": "relative", "delegate": {} }), &["subnetFile", "relative"])]
fn chains_that_cannot_be_are_refused_by_name(#[case] extra: Value, #[case] parts: &[&str]) {
    let error = planned(Verb::Add, &extra).unwrap_err();
    assert_eq!(error.code, cni::code::INVALID_CONFIG);
    for part in parts {
        assert!(error.msg.contains(part), "{part} is not in {error}");
    }
}

#[test]
fn without_a_delegate_the_step_is_our_own() {
    let range = json!({ "pod_cidr": "10.9.0.0/24", "mtu": 1400 });
    let alone = planned(Verb::Add, &range).unwrap();
    let member = planned(
        Verb::Add,
        &json!({ "pod_cidr": "10.9.0.0/24", "mtu": 1400, "plugins": [{ "type": "headcni" }] }),
    )
    .unwrap();
    for plan in [alone, member] {
        let [step] = &plan.steps[..] else {
            panic!("{plan:?}");
        };
        assert_eq!(step.kind.as_str(), OWN_TYPE);
        assert_eq!(step.conf["mtu"], 1400);
        assert_eq!(step.conf["ipam"]["type"], "headcni-ipam");
    }
}

#[test]
fn a_configuration_that_makes_no_sense_can_still_be_undone() {
    let nonsense = json!({ "pod_cidr": "10.9.0.0/24", "service_cidr": "10.9.0.0/16" });
    assert!(planned(Verb::Add, &nonsense).is_err());
    for verb in [Verb::Del, Verb::Gc] {
        assert_eq!(planned(verb, &nonsense).unwrap().steps.len(), 1, "{verb}");
    }
}

#[test]
fn ranges_that_the_runtime_gives_to_a_member_need_no_subnet_file() {
    let chain = json!({
        "capabilities": { "ipRanges": true },
        "runtimeConfig": { "ipRanges": [[{ "subnet": "10.9.0.0/24" }]] },
        "plugins": [{ "type": "headcni", "delegate": {}, "capabilities": { "ipRanges": true } }]
    });
    let plan = planned(Verb::Add, &chain).unwrap();
    assert!(plan.steps[0].conf["ipam"].get("ranges").is_none());
}
