//! The plugin's log, and its warnings: one line per call, and never a secret.

use lab::{Call, Node, Outcome, Pod};
use rstest::rstest;
use serde_json::{Value, json};

use crate::calls::*;

const LOG: &str = "/run/log/headcni.log";

/// The lines of calls.
fn lines(node: &Node) -> Vec<Value> {
    let (calls, _) = all_lines(node);
    calls
}

/// The lines of calls, and those of events that the daemon did not get.
fn all_lines(node: &Node) -> (Vec<Value>, Vec<Value>) {
    let text = node.read(LOG).unwrap_or_default();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.partition(|line: &Value| line.get("steps").is_some())
}

fn logging(more: Value) -> Value {
    merged(&delegating("1.1.0", json!({"log_file": LOG})), more)
}

#[test]
fn every_call_is_a_line_and_so_is_an_event_that_no_daemon_got() {
    let node = node();
    let pod = node.pod("p").unwrap();
    let conf = logging(json!({}));
    let args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;\
                K8S_POD_UID=1-2-3;K8S_POD_INFRA_CONTAINER_ID=abcdef";
    let ask = |verb, conf: &Value| run(&node, &call(verb, conf).pod(&pod).args(args));
    let result = ask("ADD", &conf).ok_json().unwrap();
    let known = merged(&conf, json!({"prevResult": result}));
    for verb in ["CHECK", "STATUS", "DEL", "GC"] {
        let outcome = ask(verb, &known);
        outcome.ok().unwrap();
        assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("", ""));
    }
    let (lines, unsent) = all_lines(&node);
    let verbs: Vec<_> = unsent.iter().map(|line| line["verb"].clone()).collect();
    assert_eq!(verbs, ["ADD", "DEL"], "no daemon runs");
    for line in &unsent {
        let error = line["error"].as_str().unwrap();
        assert!(error.contains("notify headcni-daemon"), "{error}");
        assert!(error.contains("/run/headcni/daemon.sock"), "{error}");
    }
    let verbs: Vec<_> = lines.iter().map(|line| line["verb"].clone()).collect();
    assert_eq!(verbs, ["ADD", "CHECK", "STATUS", "DEL", "GC"]);
    for line in &lines {
        assert_eq!(line["network"], "net");
        assert_eq!(line["outcome"], "ok");
        assert!(line["duration_ms"].as_f64().unwrap() > 0.0);
        let steps = line["steps"].as_array().unwrap();
        assert_eq!(steps.len(), 1, "{line}");
        assert_eq!(steps[0]["plugin"], "bridge");
        assert_eq!(steps[0]["verb"], line["verb"]);
        assert!(steps[0]["duration_ms"].as_f64().unwrap() > 0.0);
    }
    let pod = json!({"namespace": "shop", "name": "web-0", "uid": "1-2-3", "sandbox": "abcdef"});
    for line in [&lines[0], &lines[1], &lines[3]] {
        assert_eq!(
            (&line["container"], &line["ifname"]),
            (&json!("p"), &json!("eth0"))
        );
        assert_eq!(line["pod"], pod);
    }
}

#[test]
fn a_failure_is_logged_with_its_code_and_steps() {
    let node = node();
    let pod = node.pod("p").unwrap();
    let members = [
        json!({"type": "headcni", "delegate": {"bridge": "cni0"}}),
        json!({"type": "tuning", "sysctl": {"net.ipv4.no_such_thing": "1"}}),
    ];
    let conf = chaining("1.1.0", &members, json!({"log_file": LOG}));
    let outcome = ask("ADD", &conf, &pod);
    assert!(!outcome.status.success());
    let line = lines(&node).pop().unwrap();
    assert_eq!(line["outcome"], "error");
    assert_eq!(line["level"], "error");
    assert_eq!(line["code"].as_u64(), outcome.err_code());
    assert!(line["error"].as_str().unwrap().contains(outcome.err_msg()));
    let steps = line["steps"].as_array().unwrap().iter();
    let steps: Vec<_> = steps
        .map(|step| [&step["plugin"], &step["verb"], &step["outcome"]].map(|v| v.as_str().unwrap()))
        .collect();
    let expected = [
        ["bridge", "ADD", "ok"],
        ["tuning", "ADD", "error"],
        ["tuning", "DEL", "ok"],
        ["bridge", "DEL", "ok"],
    ];
    assert_eq!(steps, expected);
}

#[rstest]
#[case::of_a_wrong_type(json!({"mtu": "big"}))]
#[case::of_a_contradiction(json!({"mtu": 1300, "delegate": {"mtu": 1400}}))]
#[case::of_a_missing_plugin(json!({"delegate": {"type": "nonesuch"}}))]
fn a_refused_configuration_is_logged_too(#[case] wrong: Value) {
    let node = node();
    let pod = node.pod("p").unwrap();
    refused(&ask("ADD", &logging(wrong), &pod), 7);
    let lines = lines(&node);
    assert_eq!(lines.len(), 1);
    assert_eq!(
        (&lines[0]["outcome"], &lines[0]["code"]),
        (&json!("error"), &json!(7))
    );
}

#[rstest]
#[case::quiet(json!({"log_level": "error"}), "", 0)]
#[case::raised(json!({"log_level": "error"}), "2", 1)]
#[case::usual(json!({}), "", 1)]
fn the_level_decides(#[case] more: Value, #[case] klog_v: &str, #[case] count: usize) {
    let node = node();
    let call = call("STATUS", &logging(more)).env("KLOG_V", klog_v);
    run(&node, &call).ok().unwrap();
    assert_eq!(lines(&node).len(), count);
}

#[test]
fn klog_sends_the_line_to_stderr() {
    let node = node();
    let pod = node.pod("p").unwrap();
    let conf = delegating("1.1.0", json!({}));
    let call = call("ADD", &conf).pod(&pod).env("KLOG_LOGTOSTDERR", "true");
    let outcome = run(&node, &call);
    assert_eq!(address(&outcome.ok_json().unwrap()), "10.244.1.2");
    let line = outcome.stderr.lines().next().unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!(
        (&line["verb"], &line["outcome"]),
        (&json!("ADD"), &json!("ok"))
    );
    assert!(!node.has(LOG));
}

#[test]
fn a_log_that_cannot_be_written_fails_no_call() {
    let node = node();
    let conf = delegating("1.1.0", json!({"log_file": "/etc/hostname/log"}));
    let outcome = run(&node, &call("STATUS", &conf));
    outcome.ok().unwrap();
    assert!(outcome.stderr.contains("/etc/hostname/log"), "{outcome:?}");
}

/// A call with secrets wherever a secret can be.
fn secretive(verb: &str, conf: &Value, pod: &Pod) -> (Call, Value) {
    let secret = json!({"password": "CANARY", "list": ["CANARY"]});
    let more = json!({
        "log_file": LOG, "log_level": "debug", "vendor": secret, "headscale_auth_key": "CANARY",
        "args": {"cni": {"labels": [{"key": "k", "value": "CANARY"}]}},
        "capabilities": {"vendor": true}, "runtimeConfig": {"vendor": secret},
    });
    let conf = merged(conf, more);
    let args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=a;K8S_POD_NAME=b;TOKEN=CANARY";
    let call = call(verb, &conf).pod(pod).args(args);
    let call = call.env("HEADCNI_AUTH_KEY", "CANARY").env("KLOG_V", "9");
    (call.env("KLOG_LOGTOSTDERR", "true"), conf)
}

fn told(node: &Node, outcome: &Outcome) -> String {
    let log = node.read(LOG).unwrap();
    assert!(!log.is_empty());
    format!("{log}{}{}", outcome.stdout, outcome.stderr)
}

#[test]
fn no_secret_is_told() {
    let node = node();
    let pod = node.pod("p").unwrap();
    let delegate = json!({"bridge": "cni0", "token": "CANARY"});
    let good = delegating("1.1.0", json!({"delegate": delegate}));
    let delegate = json!({"type": "nonesuch", "token": "CANARY"});
    let missing = delegating("1.1.0", json!({"delegate": delegate}));
    let no_subnet = merged(&good, json!({"subnetFile": "/nowhere"}));
    for conf in [missing, no_subnet, good] {
        let (call, conf) = secretive("ADD", &conf, &pod);
        let outcome = run(&node, &call);
        assert!(!told(&node, &outcome).contains("CANARY"), "{outcome:?}");
        let known = merged(&conf, json!({"prevResult": outcome.json}));
        for verb in ["CHECK", "STATUS", "DEL", "GC"] {
            let (call, _) = secretive(verb, &known, &pod);
            let outcome = run(&node, &call);
            assert!(!told(&node, &outcome).contains("CANARY"), "{outcome:?}");
        }
    }
}

#[test]
fn no_secret_is_told_of_a_contradiction() {
    let node = node();
    let pod = node.pod("p").unwrap();
    let ipam = |name| json!({"type": name, "password": "CANARY"});
    let conf = logging(json!({"ipam": ipam("a"), "delegate": {"ipam": ipam("b")}}));
    let outcome = ask("ADD", &conf, &pod);
    let message = refused(&outcome, 7);
    assert!(message.contains("delegate.ipam"), "{message}");
    assert!(!told(&node, &outcome).contains("CANARY"), "{outcome:?}");
}

#[rstest]
#[case::declared_nowhere_else(json!({}), true)]
#[case::declared(json!({"capabilities": {"portMappings": true}}), false)]
#[case::given(json!({"runtimeConfig": {"portMappings": []}}), false)]
fn a_capability_that_never_arrives_is_warned_of(#[case] outer: Value, #[case] is_warned: bool) {
    let node = node();
    let pod = node.pod("p").unwrap();
    let members = [
        json!({"type": "headcni", "delegate": {"bridge": "cni0"}}),
        json!({"type": "portmap", "capabilities": {"portMappings": true}}),
    ];
    let conf = chaining("1.1.0", &members, merged(&outer, json!({"log_file": LOG})));
    let outcome = ask("ADD", &conf, &pod);
    outcome.ok_json().unwrap();
    assert_eq!(!outcome.stderr.is_empty(), is_warned, "{}", outcome.stderr);
    let line = lines(&node).pop().unwrap();
    assert_eq!(line.get("warnings").is_some(), is_warned, "{line}");
    if is_warned {
        assert_eq!(line["level"], "warn");
        for word in ["plugins[1].capabilities", "portMappings"] {
            assert!(outcome.stderr.contains(word), "{}", outcome.stderr);
        }
    }
}
