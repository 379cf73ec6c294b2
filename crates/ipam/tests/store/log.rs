//! The log: as headcni's, one line per call, by the same keys and variables.

use lab::Node;
use rstest::rstest;
use serde_json::{Value, json};

use crate::scene::Plugin::Ours;
use crate::scene::{Scene, call, done, merged, succeeded};

const LOG: &str = "/run/log/ipam.log";

fn lines(node: &Node) -> Vec<Value> {
    let text = node.read(LOG).unwrap_or_default();
    let line = |line| serde_json::from_str(line).unwrap();
    text.lines().map(line).collect()
}

fn logging(scene: &Scene, more: &Value) -> Value {
    let conf = scene.subnets(&["10.1.0.0/24"]);
    merged(&merged(&conf, &json!({"log_file": LOG})), more)
}

#[test]
fn every_call_leaves_one_line() {
    let scene = Scene::new();
    let conf = logging(&scene, &json!({"cni.dev/valid-attachments": []}));
    let args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_UID=1-2";
    succeeded(&scene.run(Ours, &call("ADD", "a", &conf).args(args)));
    for verb in ["CHECK", "STATUS", "DEL", "GC"] {
        let outcome = scene.ask(Ours, verb, "a", &conf);
        done(&outcome);
        assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("", ""));
    }
    let lines = lines(&scene.node);
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
fn a_failure_is_logged_with_its_code() {
    let scene = Scene::new();
    let conf = logging(&scene, &json!({}));
    let add = call("ADD", "a", &conf).args("IP=10.9.9.9");
    let outcome = scene.run(Ours, &add);
    assert!(!outcome.status.success());
    let line = lines(&scene.node).pop().unwrap();
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
fn the_level_decides(#[case] more: Value, #[case] klog_v: &str, #[case] count: usize) {
    let scene = Scene::new();
    let conf = logging(&scene, &more);
    done(&scene.run(Ours, &call("STATUS", "", &conf).env("KLOG_V", klog_v)));
    assert_eq!(lines(&scene.node).len(), count);
}

#[test]
fn klog_sends_the_line_to_stderr_and_never_to_stdout() {
    let scene = Scene::new();
    let conf = scene.subnets(&["10.1.0.0/24"]);
    let add = call("ADD", "a", &conf).env("KLOG_LOGTOSTDERR", "true");
    let outcome = scene.run(Ours, &add);
    assert_eq!(succeeded(&outcome)["ips"][0]["address"], "10.1.0.2/24");
    let line: Value = serde_json::from_str(&outcome.stderr).unwrap();
    assert_eq!(
        (&line["verb"], &line["outcome"]),
        (&json!("ADD"), &json!("ok"))
    );
}

#[test]
fn a_log_that_cannot_be_written_fails_no_call() {
    let scene = Scene::new();
    scene.node.write("/run/file", "").unwrap();
    let conf = logging(&scene, &json!({"log_file": "/run/file/log"}));
    let outcome = scene.ask(Ours, "ADD", "a", &conf);
    succeeded(&outcome);
    assert!(outcome.stderr.contains("/run/file/log"), "{outcome:?}");
}
