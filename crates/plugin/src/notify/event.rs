//! The event of a call.

use std::time::{Duration, UNIX_EPOCH};

use api::event::{Event, EventPod, EventStep, StepOutcome, VERSION};
use cni::call_log::{CallOutcome, CallStep, CallSummary};
use cni::{Attachment, Call, Error, Keys, PluginType, Verb};
use serde_json::{Map, Value};

use crate::conf::mode_name;
use attachment::PLUGIN_TYPE;

/// Limit of steps and of addresses; a long chain of plugins has about ten.
const MAX_ITEMS: usize = 64;

const OWN_IPAM: &str = "headcni-ipam";
/// The default IPAM plugin of a delegate.
const DELEGATES_IPAM: &str = "host-local";

/// The event of a call that has ended.
pub(crate) fn event(
    call: &Call,
    of: &Attachment,
    ended: CallSummary,
    error: Option<&Error>,
) -> Event {
    let mut ips = ended.ips;
    ips.truncate(MAX_ITEMS);
    let began = ended.started.duration_since(UNIX_EPOCH).unwrap_or_default();
    Event {
        version: VERSION,
        verb: call.verb.as_str().to_owned(),
        network: call.conf.name().to_string(),
        container: of.container.to_string(),
        ifname: of.ifname.to_string(),
        netns: of.netns.clone(),
        pod: ended.pod.map(|pod| EventPod {
            namespace: pod.namespace,
            name: pod.name,
            uid: pod.uid,
        }),
        ips,
        mode: mode_name(Keys::new(call.conf.keys(), "")).to_owned(),
        strategy: match call.verb {
            Verb::Add => strategy(call.conf.keys()).map(str::to_owned),
            _ => None,
        },
        started_unix_ms: whole(began.as_millis()),
        duration_us: micros(ended.duration),
        steps: steps(call.verb, ended.steps),
        code: error.map(|error| error.code),
    }
}

fn steps(verb: Verb, steps: Vec<CallStep>) -> Vec<EventStep> {
    let steps = steps.into_iter().take(MAX_ITEMS);
    steps
        .map(|step| EventStep {
            name: step.name,
            verb: (step.verb != verb).then(|| step.verb.as_str().to_owned()),
            duration_us: micros(step.duration),
            outcome: match step.outcome {
                CallOutcome::Ok => StepOutcome::Ok,
                CallOutcome::Error => StepOutcome::Error,
            },
        })
        .collect()
}

/// The allocation strategy of headcni-ipam, or the type of another IPAM plugin. In a chain, that of
/// the first member with IPAM.
fn strategy(conf: &Map<String, Value>) -> Option<&str> {
    let Some(members) = conf.get("plugins").and_then(Value::as_array) else {
        return strategy_of_own(conf);
    };
    let mut members = members.iter().filter_map(Value::as_object);
    members.find_map(|member| match text(member.get("type")) {
        Some(PLUGIN_TYPE) => strategy_of_own(member),
        _ => strategy_in(member.get("ipam"), None),
    })
}

/// As [`strategy`], for a configuration of type `headcni`.
fn strategy_of_own(conf: &Map<String, Value>) -> Option<&str> {
    let beside = conf.get("ipam").filter(|ipam| !ipam.is_null());
    match conf.get("delegate").and_then(Value::as_object) {
        Some(delegate) => strategy_in(beside.or(delegate.get("ipam")), Some(DELEGATES_IPAM)),
        None => strategy_in(beside, Some(OWN_IPAM)),
    }
}

fn strategy_in<'a>(ipam: Option<&'a Value>, default: Option<&'a str>) -> Option<&'a str> {
    let key = |name| ipam.and_then(|ipam| text(ipam.get(name)));
    match key("type").or(default)? {
        // Only known names become label values.
        OWN_IPAM => {
            let named = key("allocation_strategy").unwrap_or("sequential");
            named
                .parse::<ipam::AllocationStrategy>()
                .ok()
                .map(|_| named)
        }
        kind => PluginType::new("ipam.type", kind).ok().map(|_| kind),
    }
}

fn text(value: Option<&Value>) -> Option<&str> {
    value?.as_str().filter(|text| !text.is_empty())
}

fn micros(duration: Duration) -> u64 {
    whole(duration.as_micros())
}

fn whole(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use cni::{CniArgs, ContainerId, Env, IfName, NetConf, Pod};
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::native(json!({}), Some("sequential"))]
    #[case::native_named(json!({ "ipam": { "allocation_strategy": "random" } }), Some("random"))]
    #[case::native_wrong(json!({ "ipam": { "allocation_strategy": "secret" } }), None)]
    #[case::native_executed(json!({ "ipam": { "type": "host-local" } }), Some("host-local"))]
    #[case::delegate(json!({ "delegate": {} }), Some("host-local"))]
    #[case::delegate_named(json!({ "delegate": { "ipam": { "type": "dhcp" } } }), Some("dhcp"))]
    #[case::beside_delegate(
        json!({ "ipam": { "type": "headcni-ipam", "allocation_strategy": "dense-pack" }, "delegate": {} }),
        Some("dense-pack")
    )]
    #[case::chain(
        json!({ "plugins": [{ "type": "tuning" }, { "type": "ptp", "ipam": { "type": "static" } }] }),
        Some("static")
    )]
    #[case::chain_with_us(json!({ "plugins": [{ "type": "headcni" }] }), Some("sequential"))]
    #[case::chain_without_addresses(json!({ "plugins": [{ "type": "tuning" }] }), None)]
    #[case::no_plugin(json!({ "ipam": { "type": "../../etc/passwd" } }), None)]
    #[case::nonsense(json!({ "ipam": 5, "delegate": 5, "plugins": 5 }), Some("sequential"))]
    fn the_strategy_follows_from_the_configuration(
        #[case] conf: Value,
        #[case] expected: Option<&str>,
    ) {
        assert_eq!(strategy(conf.as_object().unwrap()), expected);
    }

    #[test]
    fn an_event_contains_nothing_of_the_configuration() {
        let conf = json!({
            "name": "net", "cniVersion": "1.1.0", "canary": "in-the-configuration",
            "delegate": { "type": "bridge", "password": "in-the-configuration" },
        });
        let args = "K8S_POD_NAMESPACE=web;K8S_POD_NAME=web-0;K8S_POD_UID=1-2;TOKEN=in-the-args";
        let call = Call {
            verb: Verb::Add,
            conf: NetConf::parse(conf.to_string().as_bytes()).unwrap(),
            env: [("TOKEN", "in-the-environment")]
                .into_iter()
                .collect::<Env>(),
        };
        let of = Attachment {
            container: ContainerId::new("c1").unwrap(),
            ifname: IfName::new("eth0").unwrap(),
            netns: Some("/run/netns/c1".to_owned()),
            args: CniArgs::parse(args).unwrap(),
        };
        let step = |verb, outcome| CallStep {
            name: "bridge".to_owned(),
            verb,
            outcome,
            duration: Duration::from_micros(5),
        };
        let ended = CallSummary {
            started: SystemTime::UNIX_EPOCH + Duration::from_millis(7),
            duration: Duration::from_micros(42),
            pod: Pod::from_args(&of.args),
            ips: vec!["10.0.0.2".parse().unwrap(); 1000],
            steps: vec![
                step(Verb::Add, CallOutcome::Error),
                step(Verb::Del, CallOutcome::Ok),
            ],
        };
        let error = Error::new(11, "in-the-message").with_details("in-the-details");
        let event = event(&call, &of, ended, Some(&error));
        let text = serde_json::to_string(&event).unwrap();
        assert!(!text.contains("in-the"), "{text}");
        assert_eq!(event.ips.len(), MAX_ITEMS);
        let json = serde_json::to_value(&Event {
            ips: Vec::new(),
            ..event
        });
        assert_eq!(
            json.unwrap(),
            json!({
                "version": 1, "verb": "ADD", "network": "net", "container": "c1",
                "ifname": "eth0", "netns": "/run/netns/c1", "mode": "delegate",
                "pod": { "namespace": "web", "name": "web-0", "uid": "1-2" },
                "strategy": "host-local", "startedUnixMs": 7, "durationUs": 42,
                "steps": [
                    { "name": "bridge", "durationUs": 5, "outcome": "error" },
                    { "name": "bridge", "verb": "DEL", "durationUs": 5, "outcome": "ok" },
                ],
                "code": 11,
            })
        );
    }
}
