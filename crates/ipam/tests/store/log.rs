//! The call log has the same format, keys and variables as that of headcni.

use lab::Node;
use rstest::rstest;
use serde_json::{Value, json};

use crate::store_node::Plugin::Ours;
use crate::store_node::{StoreNode, assert_ok, call, merged, result_of};

const LOG: &str = "/run/log/ipam.log";

fn lines(node: &Node) -> Vec<Value> {
    let text = node.read(LOG).unwrap_or_default();
    let line = |line| serde_json::from_str(line).unwrap();
    text.lines().map(line).collect()
}

fn logging(store: &StoreNode, more: &Value) -> Value {
    let conf = store.subnets(&["10.1.0.0/24"]);
    merged(&merged(&conf, &json!({"log_file": LOG})), more)
}

#[test]
fn every_call_logs_one_line() {
    let store = StoreNode::new();
    let conf = logging(&store, &json!({"cni.dev/valid-attachments": []}));
    let args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_UID=1-2";
    result_of(&store.run(Ours, &call("ADD", "a", &conf).args(args)));
    for verb in ["CHECK", "STATUS", "DEL", "GC"] {
        let outcome = store.call(Ours, verb, "a", &conf);
        assert_ok(&outcome);
        assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("", ""));
    }
    let lines = lines(&store.node);
    let verbs: Vec<_> = lines.iter().map(|line| line["verb"].clone()).collect();
    assert_eq!(verbs, ["ADD", "CHECK", "STATUS", "DEL", "GC"]);
    for line in &lines {
        assert_eq!(
            (&line["network"], &line["outcome"]),
            (&json!("net"), &json!("ok"))
        );
        assert!(line["duration_ms"].as_f64().unwrap() > 0.0);
    }
    assert_eq!(lines[0]["container"], "a");
    assert_eq!(lines[0]["pod"]["name"], "web-0");
    assert!(lines[0].to_string().contains("10.1.0.2"), "{}", lines[0]);
}

#[test]
fn a_failure_is_logged_with_its_error_code() {
    let store = StoreNode::new();
    let conf = logging(&store, &json!({}));
    let add = call("ADD", "a", &conf).args("IP=10.9.9.9");
    let outcome = store.run(Ours, &add);
    assert!(!outcome.status.success());
    let line = lines(&store.node).pop().unwrap();
    assert_eq!(
        (&line["outcome"], &line["level"]),
        (&json!("error"), &json!("error"))
    );
    assert_eq!(line["code"], 111);
    assert!(line["error"].as_str().unwrap().contains("10.9.9.9"));
}

#[rstest]
#[case::quiet(json!({"log_level": "error"}), "", 0)]
#[case::raised(json!({"log_level": "error"}), "2", 1)]
#[case::usual(json!({}), "", 1)]
fn the_log_level_filters_lines(#[case] more: Value, #[case] klog_v: &str, #[case] count: usize) {
    let store = StoreNode::new();
    let conf = logging(&store, &more);
    assert_ok(&store.run(Ours, &call("STATUS", "", &conf).env("KLOG_V", klog_v)));
    assert_eq!(lines(&store.node).len(), count);
}

#[test]
fn klog_logtostderr_writes_to_stderr_and_not_to_stdout() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/24"]);
    let add = call("ADD", "a", &conf).env("KLOG_LOGTOSTDERR", "true");
    let outcome = store.run(Ours, &add);
    assert_eq!(result_of(&outcome)["ips"][0]["address"], "10.1.0.2/24");
    let line: Value = serde_json::from_str(&outcome.stderr).unwrap();
    assert_eq!(
        (&line["verb"], &line["outcome"]),
        (&json!("ADD"), &json!("ok"))
    );
}

#[test]
fn an_unwritable_log_does_not_fail_the_call() {
    let store = StoreNode::new();
    store.node.write("/run/file", "").unwrap();
    let conf = logging(&store, &json!({"log_file": "/run/file/log"}));
    let outcome = store.call(Ours, "ADD", "a", &conf);
    result_of(&outcome);
    assert!(outcome.stderr.contains("/run/file/log"), "{outcome:?}");
}

/// Without `log_file` and `KLOG_LOGTOSTDERR`.
#[rstest]
#[case::debug("4", true)]
#[case::info("2", false)]
fn klog_v_4_alone_writes_debug_output_to_stderr(#[case] klog_v: &str, #[case] is_logged: bool) {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/24"]);
    let outcome = store.run(Ours, &call("ADD", "a", &conf).env("KLOG_V", klog_v));
    assert_eq!(result_of(&outcome)["ips"][0]["address"], "10.1.0.2/24");
    if !is_logged {
        assert_eq!(outcome.stderr, "");
        return;
    }
    let line: Value = serde_json::from_str(&outcome.stderr).unwrap();
    let store_dir = store.data_dir().join("net");
    assert_eq!(
        line["notes"],
        json!([
            format!("lease store {}", store_dir.display()),
            "range set 10.1.0.0/24, strategy sequential",
            "leased 10.1.0.2 from 10.1.0.0/24 to container a interface eth0",
        ])
    );
}
