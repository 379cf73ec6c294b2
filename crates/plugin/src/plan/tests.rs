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
    let steps = plan.steps.iter();
    steps
        .map(|step| match &step.plugin {
            RecordedPlugin::Native(_) => PLUGIN_TYPE,
            RecordedPlugin::Delegate { kind, .. } => kind.as_str(),
        })
        .collect()
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
    assert_eq!(plan.steps[1].plugin.config()["kept"], json!({ "a": [1] }));
    for step in &plan.steps {
        assert_eq!(
            (
                &step.plugin.config()["name"],
                &step.plugin.config()["cniVersion"]
            ),
            (&json!("net"), &json!("1.1.0"))
        );
    }
}

#[test]
fn each_member_sees_the_runtime_config_of_its_capabilities() {
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
        .map(|step| step.plugin.config().get("runtimeConfig"))
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
            .all(|step| !step.plugin.config().contains_key("capabilities"))
    );
    assert!(plan.warnings.is_empty(), "{:?}", plan.warnings);
}

#[test]
fn a_sole_delegate_sees_the_whole_runtime_config_unless_it_declares_capabilities() {
    let given = |delegate: Value| {
        let conf = json!({ "runtimeConfig": { "mac": "m", "ips": [] }, "delegate": delegate });
        planned(Verb::Add, &conf).unwrap().steps[0]
            .plugin
            .config()
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
fn a_capability_that_the_outer_configuration_lacks_is_a_warning() {
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
fn members_get_the_valid_attachments_on_gc_only() {
    let chain = json!({ "cni.dev/valid-attachments": [], "plugins": [{ "type": "a" }] });
    let has_list = |verb| {
        let plan = planned(verb, &chain).unwrap();
        plan.steps[0]
            .plugin
            .config()
            .contains_key("cni.dev/valid-attachments")
    };
    assert!(has_list(Verb::Gc));
    assert!(!has_list(Verb::Add));
}

#[test]
fn members_inherit_args_and_interfaces_inherit_the_mtu() {
    let chain = json!({ "mtu": 1400, "args": { "cni": { "x": 1 } }, "plugins": [
        { "type": "bridge" }, { "type": "tuning" }, { "type": "headcni", "delegate": {} }
    ] });
    let plan = planned(Verb::Add, &chain).unwrap();
    let mtus: Vec<_> = plan
        .steps
        .iter()
        .map(|step| step.plugin.config().get("mtu").cloned())
        .collect();
    assert_eq!(mtus, [Some(json!(1400)), None, Some(json!(1400))]);
    assert!(
        plan.steps
            .iter()
            .all(|step| step.plugin.config()["args"] == json!({ "cni": { "x": 1 } }))
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
fn invalid_chains_are_rejected_with_their_key(#[case] extra: Value, #[case] parts: &[&str]) {
    let error = planned(Verb::Add, &extra).unwrap_err();
    assert_eq!(error.code, cni::code::INVALID_CONFIG);
    for part in parts {
        assert!(error.msg.contains(part), "{part} is not in {error}");
    }
}

#[test]
fn without_a_delegate_the_step_is_native() {
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
        let RecordedPlugin::Native(conf) = &step.plugin else {
            panic!("{step:?}");
        };
        assert_eq!((conf.mtu, step.overrides.mtu_bytes), (1400, Some(1400)));
        assert_eq!(conf.keys["ipam"]["type"], "headcni-ipam");
    }
}

#[test]
fn del_and_gc_accept_a_contradictory_configuration() {
    let nonsense = json!({ "pod_cidr": "10.9.0.0/24", "service_cidr": "10.9.0.0/16" });
    assert!(planned(Verb::Add, &nonsense).is_err());
    for verb in [Verb::Del, Verb::Gc] {
        assert_eq!(planned(verb, &nonsense).unwrap().steps.len(), 1, "{verb}");
    }
}

#[test]
fn ranges_of_the_runtime_need_no_subnet_file() {
    let chain = json!({
        "capabilities": { "ipRanges": true },
        "runtimeConfig": { "ipRanges": [[{ "subnet": "10.9.0.0/24" }]] },
        "plugins": [{ "type": "headcni", "delegate": {}, "capabilities": { "ipRanges": true } }]
    });
    let plan = planned(Verb::Add, &chain).unwrap();
    assert!(
        plan.steps[0].plugin.config()["ipam"]
            .get("ranges")
            .is_none()
    );
}
