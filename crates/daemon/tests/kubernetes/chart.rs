//! The chart, as a real API server takes it. No node runs its pods here.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use lab::kubernetes::{ControlPlane, Helm, User};
use lab::scenario::JOIN_TIMEOUT;
use lab::{Node, eventually, tools};
use serde_json::{Value, json};

/// A helm that was built as ours was would think of an ancient Kubernetes where it asks none.
const VERSION: [&str; 2] = ["--kube-version", "1.29.0"];
/// Namespaces that the sets of values name, beside the ones that are there.
const NAMESPACES: [&str; 1] = ["headcni-system"];
/// For what nodes would have to be there.
const NO_HOOKS: &str = "--no-hooks";

#[test]
fn an_api_server_takes_whatever_the_chart_makes() {
    let node = Node::new("control-plane").unwrap();
    let plane = ControlPlane::start(&node).unwrap();
    let helm = Helm::new(&node, &plane).unwrap();
    let admin = plane.admin();
    prepare(admin);
    a_misspelt_field_is_refused(admin);

    let mut faults = Vec::new();
    for values in sets_of_values() {
        for object in rendered(&helm, &values) {
            if let Err(error) = take(admin, &object) {
                faults.push(format!("{values:?}: {} {error:#}", object["kind"]));
            }
        }
        let words = with_chart(&["install", "headcni", "--dry-run=server"], &values);
        if let Err(error) = run(&helm, &words) {
            faults.push(format!("{values:?}: {error:#}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));

    a_release_comes_and_goes_and_comes_again(&helm, admin);
    nothing_is_installed_beside_an_uninstallation(&helm, admin);
}

/// What has to be there before.
fn prepare(admin: &User) {
    let namespaces = NAMESPACES.map(|name| {
        let labels = json!({ "pod-security.kubernetes.io/enforce": "privileged" });
        json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": { "name": name, "labels": labels },
        })
    });
    // As Prometheus' operator brings them, but for what is in them.
    let kinds = [
        ("servicemonitors", "ServiceMonitor"),
        ("prometheusrules", "PrometheusRule"),
    ];
    let kinds = kinds.map(|(plural, kind)| {
        let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("{plural}.monitoring.coreos.com") },
            "spec": {
                "group": "monitoring.coreos.com",
                "names": { "plural": plural, "kind": kind },
                "scope": "Namespaced",
                "versions": [{
                    "name": "v1",
                    "served": true,
                    "storage": true,
                    "schema": { "openAPIV3Schema": schema },
                }],
            },
        })
    });
    for object in namespaces.iter().chain(&kinds) {
        admin.apply(object).unwrap();
    }
    eventually(JOIN_TIMEOUT, "the API knows Prometheus' kinds", || {
        let known = admin.get("/apis/monitoring.coreos.com/v1").ok()?;
        (known["resources"].as_array()?.len() == kinds.len()).then_some(())
    })
    .unwrap();
}

/// Else nothing would be proven here.
fn a_misspelt_field_is_refused(admin: &User) {
    let metadata = json!({ "name": "misspelt", "namespace": "default" });
    let object =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "dataa": {} });
    let error = admin.dry_run(&object).unwrap_err();
    assert!(error.to_string().contains("dataa"), "{error}");
}

fn take(admin: &User, object: &Value) -> anyhow::Result<()> {
    admin.dry_run(object)?;
    // A Pod is refused as long as its account is not there. Other kinds have theirs by then.
    if object["kind"] == "ServiceAccount" && object["metadata"]["name"] == "headcni-test" {
        admin.apply(object)?;
    }
    Ok(())
}

/// Another key is there at once, and is kept for whoever installs it again.
fn a_release_comes_and_goes_and_comes_again(helm: &Helm, admin: &User) {
    let key = || {
        let path = "/api/v1/namespaces/kube-system/secrets/headcni-headscale-keys";
        admin.get(path).unwrap()["data"]["api-key"].clone()
    };
    let with_key = |verb: &str, key: &str| {
        let values = [
            "--set=config.headscale.url=https://headscale.example.org".to_owned(),
            "--set=headscale.createSecret.enabled=true".to_owned(),
            format!("--set=headscale.createSecret.apiKey={key}"),
        ];
        let words = with_chart(&[verb, "headcni", NO_HOOKS], &values);
        run(helm, &words).unwrap();
    };
    let daemon_set = || admin.ask("GET", DAEMON_SET).unwrap().status;
    with_key("install", "first");
    assert_eq!((key(), daemon_set()), (json!("Zmlyc3Q="), 200));
    let before = generation(admin);
    with_key("upgrade", "second");
    assert_eq!(key(), "c2Vjb25k");
    assert_eq!(
        generation(admin),
        before,
        "pods read it again by themselves"
    );
    helm.run(&["uninstall", "headcni", NO_HOOKS]).unwrap();
    assert_eq!((key(), daemon_set()), (json!("c2Vjb25k"), 404));
    with_key("install", "third");
    assert_eq!((key(), daemon_set()), (json!("dGhpcmQ="), 200));
    helm.run(&["uninstall", "headcni", NO_HOOKS]).unwrap();
}

const DAEMON_SET: &str = "/apis/apps/v1/namespaces/kube-system/daemonsets/headcni-daemon";

/// It changes whenever pods have to be made anew.
fn generation(admin: &User) -> Value {
    admin.get(DAEMON_SET).unwrap()["metadata"]["generation"].clone()
}

/// A node that was away would take away what is new.
fn nothing_is_installed_beside_an_uninstallation(helm: &Helm, admin: &User) {
    let hooks = rendered(helm, &[]);
    let is_it =
        |it: &&Value| it["kind"] == "DaemonSet" && it["metadata"]["name"] == "headcni-uninstall";
    admin.apply(hooks.iter().find(is_it).unwrap()).unwrap();
    let words = with_chart(&["install", "headcni", NO_HOOKS], &[]);
    let refused = run(helm, &words).unwrap_err().to_string();
    let remedy = "kubectl -n kube-system delete daemonset,job headcni-uninstall";
    assert!(refused.contains(remedy), "{refused}");
}

/// Objects that the chart makes of values, hooks and tests too.
pub(crate) fn rendered(helm: &Helm, values: &[String]) -> Vec<Value> {
    let mut words = with_chart(&["template", "headcni"], values);
    words.extend(VERSION.map(str::to_owned));
    let text = run(helm, &words).unwrap();
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    // Accounts first: `helm template` has hooks in no order.
    let (accounts, others): (Vec<_>, Vec<_>) = objects
        .into_iter()
        .filter(|object| !object.is_null())
        .partition(|object| object["kind"] == "ServiceAccount");
    accounts.into_iter().chain(others).collect()
}

fn run(helm: &Helm, words: &[String]) -> anyhow::Result<String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    helm.run(&words)
}

fn with_chart(words: &[&str], values: &[String]) -> Vec<String> {
    let chart = chart().to_str().unwrap().to_owned();
    let words = words.iter().map(|word| (*word).to_owned());
    words.chain([chart]).chain(values.iter().cloned()).collect()
}

fn chart() -> PathBuf {
    tools::workspace_dir().join("charts/headcni")
}

/// All that are kept beside the chart: files, and command lines of documents.
fn sets_of_values() -> Vec<Vec<String>> {
    let ci = chart().join("ci");
    let mut files: Vec<PathBuf> = fs::read_dir(&ci)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension() == Some(OsStr::new("yaml")))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    let of_file = |file: &PathBuf| vec![format!("--values={}", Path::display(file))];
    let commands = fs::read_to_string(ci.join("commands")).unwrap();
    let commands = commands.lines().filter(|line| !line.starts_with('#'));
    let of_command = |line: &str| line.split_whitespace().map(str::to_owned).collect();
    let sets = files.iter().map(of_file).chain(commands.map(of_command));
    sets.chain([Vec::new()]).collect()
}
