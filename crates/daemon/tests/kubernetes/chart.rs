//! The chart against a real API server, without nodes.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use lab::kubernetes::{ControlPlane, Helm, User};
use lab::scenario::JOIN_TIMEOUT;
use lab::{Node, eventually, tools};
use serde_json::{Value, json};

/// Our build of helm assumes an old Kubernetes where it has no API server.
const VERSION: [&str; 2] = ["--kube-version", "1.29.0"];
/// Namespaces in the values that a new cluster does not have.
const NAMESPACES: [&str; 1] = ["headcni-system"];
/// Hooks need nodes.
const NO_HOOKS: &str = "--no-hooks";

#[test]
fn the_api_server_accepts_the_chart_with_all_sets_of_values() {
    let node = Node::new("control-plane").unwrap();
    let plane = ControlPlane::start(&node).unwrap();
    let helm = Helm::new(&node, &plane).unwrap();
    let admin = plane.admin();
    prepare(admin);
    an_unknown_field_is_refused(admin);

    let mut faults = Vec::new();
    for values in sets_of_values() {
        for object in rendered(&helm, &values) {
            if let Err(error) = dry_run(admin, &object) {
                faults.push(format!("{values:?}: {} {error:#}", object["kind"]));
            }
        }
        let args = with_chart(&["install", "headcni", "--dry-run=server"], &values);
        if let Err(error) = run(&helm, &args) {
            faults.push(format!("{values:?}: {error:#}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));

    a_release_is_installed_upgraded_uninstalled_and_reinstalled(&helm, admin);
    install_is_refused_during_an_uninstall(&helm, admin);
}

fn prepare(admin: &User) {
    let namespaces = NAMESPACES.map(|name| {
        let labels = json!({ "pod-security.kubernetes.io/enforce": "privileged" });
        json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": { "name": name, "labels": labels },
        })
    });
    // The CRDs of the Prometheus operator, without their schema.
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
    eventually(JOIN_TIMEOUT, "the API serves the CRDs", || {
        let known = admin.get("/apis/monitoring.coreos.com/v1").ok()?;
        (known["resources"].as_array()?.len() == kinds.len()).then_some(())
    })
    .unwrap();
}

/// Otherwise dry runs would prove nothing.
fn an_unknown_field_is_refused(admin: &User) {
    let metadata = json!({ "name": "unknown", "namespace": "default" });
    let object =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "dataa": {} });
    let error = admin.dry_run(&object).unwrap_err();
    assert!(error.to_string().contains("dataa"), "{error}");
}

fn dry_run(admin: &User, object: &Value) -> anyhow::Result<()> {
    admin.dry_run(object)?;
    // A Pod is refused without its ServiceAccount.
    if object["kind"] == "ServiceAccount" && object["metadata"]["name"] == "headcni-test" {
        admin.apply(object)?;
    }
    Ok(())
}

/// A new key takes effect at once, and the Secret survives an uninstall.
fn a_release_is_installed_upgraded_uninstalled_and_reinstalled(helm: &Helm, admin: &User) {
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
        let args = with_chart(&[verb, "headcni", NO_HOOKS], &values);
        run(helm, &args).unwrap();
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
        "Pods reload the key without a restart"
    );
    helm.run(&["uninstall", "headcni", NO_HOOKS]).unwrap();
    assert_eq!((key(), daemon_set()), (json!("c2Vjb25k"), 404));
    with_key("install", "third");
    assert_eq!((key(), daemon_set()), (json!("dGhpcmQ="), 200));
    helm.run(&["uninstall", "headcni", NO_HOOKS]).unwrap();
}

const DAEMON_SET: &str = "/apis/apps/v1/namespaces/kube-system/daemonsets/headcni-daemon";

/// Changes when Pods have to be recreated.
fn generation(admin: &User) -> Value {
    admin.get(DAEMON_SET).unwrap()["metadata"]["generation"].clone()
}

/// A node that returns later would remove the new installation.
fn install_is_refused_during_an_uninstall(helm: &Helm, admin: &User) {
    let hooks = rendered(helm, &[]);
    let is_it =
        |it: &&Value| it["kind"] == "DaemonSet" && it["metadata"]["name"] == "headcni-uninstall";
    admin.apply(hooks.iter().find(is_it).unwrap()).unwrap();
    let args = with_chart(&["install", "headcni", NO_HOOKS], &[]);
    let refused = run(helm, &args).unwrap_err().to_string();
    let remedy = "kubectl -n kube-system delete daemonset,job headcni-uninstall";
    assert!(refused.contains(remedy), "{refused}");
}

/// The rendered objects, hooks and tests included.
pub(crate) fn rendered(helm: &Helm, values: &[String]) -> Vec<Value> {
    let mut args = with_chart(&["template", "headcni"], values);
    args.extend(VERSION.map(str::to_owned));
    let text = run(helm, &args).unwrap();
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    // ServiceAccounts first: `helm template` does not order hooks.
    let (accounts, others): (Vec<_>, Vec<_>) = objects
        .into_iter()
        .filter(|object| !object.is_null())
        .partition(|object| object["kind"] == "ServiceAccount");
    accounts.into_iter().chain(others).collect()
}

fn run(helm: &Helm, args: &[String]) -> anyhow::Result<String> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    helm.run(&args)
}

fn with_chart(args: &[&str], values: &[String]) -> Vec<String> {
    let chart = chart().to_str().unwrap().to_owned();
    let args = args.iter().map(|arg| (*arg).to_owned());
    args.chain([chart]).chain(values.iter().cloned()).collect()
}

fn chart() -> PathBuf {
    tools::workspace_dir().join("charts/headcni")
}

/// The values files beside the chart, and the command lines of the docs.
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
