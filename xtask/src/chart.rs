//! `make chart`: `helm lint` and `helm template` with every set of values in `charts/headcni/ci`, and
//! checks of what neither helm nor the server-side dry run of `make e2e` proves.

mod schema;

use std::collections::BTreeSet;
use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use lab::tools::{headcni_daemon, workspace_dir};
use lab::with_clean_environment;
use serde_json::{Map, Value, json};

use crate::process::progress;
use crate::{dist, tools};

const DAEMON: &str = "headcni-daemon";
/// First line of a file of invalid values: the error that helm must print.
const EXPECTED_ERROR: &str = "# error: ";
/// Secrets in the sets of values start with this.
const CANARY: &str = "canary-";
/// Variables whose value would be a secret. Secrets are mounted as files.
const SECRET_VARIABLES: [&str; 3] = [
    "HEADCNID_HEADSCALE_API_KEY",
    "HEADCNID_HEADSCALE_PRE_AUTH_KEY",
    "TS_AUTHKEY",
];
/// The documented permissions of the daemon; `make e2e` proves that they are enough.
const DOCUMENTED_ROLE: &str = include_str!("../../docs/kubernetes.md");
/// Where the chart mounts secrets and certificates.
const MOUNTED: [&str; 2] = ["/etc/headcni-keys/", "/etc/headcni-ca/"];

/// `cargo xtask chart [schema]`: checks the chart, or updates its schema.
pub(crate) fn run(args: &[String]) -> Result<()> {
    match args {
        [] => check(),
        [word] if word == "schema" => schema::write(&chart_dir()),
        _ => bail!("chart takes \"schema\" or nothing, not {args:?}"),
    }
}

fn chart_dir() -> PathBuf {
    workspace_dir().join("charts/headcni")
}

fn check() -> Result<()> {
    let start = Instant::now();
    schema::check(&chart_dir())?;
    let helm = Helm(tools::ensure_helm()?);
    if env::var_os("HEADCNI_BIN_DIR").is_none() && !dist::bin_dir().join(DAEMON).is_file() {
        dist::build()?;
    }
    let valid = valid_values()?;
    for (name, args, values) in &valid {
        helm.run(&["lint", "--strict"], args)?;
        let rendered = helm.run(&["template", "headcni"], args)?;
        check_rendered(&rendered, values.as_ref())
            .with_context(|| format!("the chart with {name}"))?;
    }
    let invalid = files(&chart_dir().join("ci/bad"))?;
    for file in &invalid {
        helm.check_refused(file)?;
    }
    check_static_pod()?;
    let (valid, invalid) = (valid.len(), invalid.len());
    progress(
        start,
        &format!("chart: {valid} sets of values rendered, {invalid} refused"),
    );
    Ok(())
}

struct Helm(PathBuf);

impl Helm {
    fn run(&self, words: &[&str], values: &[String]) -> Result<String> {
        let output = self.output(words, values)?;
        if !output.status.success() {
            bail!("helm {} with {values:?}:\n{}", words[0], messages(&output));
        }
        String::from_utf8(output.stdout).context("helm printed no UTF-8")
    }

    fn check_refused(&self, file: &Path) -> Result<()> {
        let text = read(file)?;
        let expected = text
            .lines()
            .next()
            .and_then(|line| line.strip_prefix(EXPECTED_ERROR));
        let expected =
            expected.with_context(|| format!("{} needs {EXPECTED_ERROR:?}", file.display()))?;
        let output = self.output(&["template", "headcni"], &values_file(file))?;
        if output.status.success() || !messages(&output).contains(expected) {
            let found = messages(&output);
            bail!(
                "{}: expected the error {expected:?}, found:\n{found}",
                file.display()
            );
        }
        Ok(())
    }

    fn output(&self, words: &[&str], values: &[String]) -> Result<Output> {
        let mut command = Command::new(&self.0);
        // Without a cluster, our build of helm assumes an ancient Kubernetes.
        let version = ["--kube-version", "1.29.0"];
        command
            .args(words)
            .arg(chart_dir())
            .args(version)
            .args(values);
        // The result depends on the chart alone.
        command.env("HELM_NO_PLUGINS", "1").env_remove("KUBECONFIG");
        command.output().context("start helm")
    }
}

fn messages(output: &Output) -> String {
    let streams = [&output.stdout, &output.stderr];
    streams
        .map(|stream| String::from_utf8_lossy(stream))
        .concat()
}

/// A name, helm's arguments, and the values if they are in a file.
type ValueSet = (String, Vec<String>, Option<Value>);

/// Files, and command lines from documents.
fn valid_values() -> Result<Vec<ValueSet>> {
    let mut all = Vec::new();
    for file in files(&chart_dir().join("ci"))? {
        let values = serde_saphyr::from_str(&read(&file)?).context("parse values")?;
        all.push((file.display().to_string(), values_file(&file), Some(values)));
    }
    let commands = read(&chart_dir().join("ci/commands"))?;
    let lines = commands.lines().filter(|line| !line.starts_with('#'));
    for line in lines.chain([""]) {
        let args = line.split_whitespace().map(str::to_owned).collect();
        all.push((format!("arguments {line:?}"), args, None));
    }
    Ok(all)
}

fn values_file(file: &Path) -> Vec<String> {
    vec!["--values".to_owned(), file.display().to_string()]
}

fn check_rendered(text: &str, values: Option<&Value>) -> Result<()> {
    if let Some(line) = text.lines().find(|line| line.contains(CANARY)) {
        bail!("a secret is readable: {line}");
    }
    let objects: Vec<Value> =
        serde_saphyr::from_multiple(text).context("parse what helm rendered")?;
    let find = |kind: &str, name: &str| {
        let found = objects
            .iter()
            .find(|it| it["kind"] == kind && it["metadata"]["name"] == name);
        found.with_context(|| format!("there is no {kind} {name}"))
    };
    for object in &objects {
        check_secrets(object)?;
        check_permissions(object)?;
    }
    let pod = &find("DaemonSet", DAEMON)?["spec"]["template"]["spec"];
    check_pod_spec(pod)?;
    check_telemetry(pod)?;

    let config = &find("ConfigMap", DAEMON)?["data"]["daemon.yaml"];
    let config = config
        .as_str()
        .context("the ConfigMap has no daemon.yaml")?;
    for copy in ["headcni-check", "headcni-uninstall"] {
        if find("ConfigMap", copy).is_ok_and(|it| it["data"]["daemon.yaml"] != config) {
            bail!("the ConfigMap {copy} has another daemon.yaml");
        }
    }
    if let Some(values) = values {
        let rendered: Value = serde_saphyr::from_str(config).context("parse daemon.yaml")?;
        if without_nulls(&rendered) != without_nulls(&values["config"]) {
            bail!("daemon.yaml is not the values' config:\n{config}");
        }
    }
    check_with_daemon(config, pod)
}

/// The API server accepts a `DaemonSet` without any of this.
fn check_pod_spec(pod: &Value) -> Result<()> {
    let expected = [
        ("hostNetwork", json!(true)),
        // The cluster's DNS needs the network that is to be set up.
        ("dnsPolicy", json!("Default")),
        ("priorityClassName", json!("system-node-critical")),
        ("enableServiceLinks", json!(false)),
    ];
    for (key, value) in expected {
        if pod[key] != value {
            bail!("the DaemonSet has {key} = {}, not {value}", pod[key]);
        }
    }
    if !list(&pod["tolerations"]).any(|it| *it == json!({ "operator": "Exists" })) {
        bail!("the DaemonSet does not tolerate every taint");
    }
    Ok(())
}

/// A tailscaled of ours sends Tailscale no logs.
fn check_telemetry(pod: &Value) -> Result<()> {
    let containers = ["initContainers", "containers"].map(|key| list(&pod[key]));
    for tailscaled in containers
        .into_iter()
        .flatten()
        .filter(|it| it["name"] == "tailscaled")
    {
        let switch = json!({ "name": "TS_NO_LOGS_NO_SUPPORT", "value": "true" });
        if !list(&tailscaled["args"]).any(|arg| arg == "--no-logs-no-support")
            || !list(&tailscaled["env"]).any(|variable| *variable == switch)
        {
            bail!("tailscaled would send logs to Tailscale");
        }
    }
    Ok(())
}

fn check_static_pod() -> Result<()> {
    let text = read(&workspace_dir().join("deploy/static-pod/headcni-daemon.yaml"))?;
    let pod: Value = serde_saphyr::from_str(&text).context("parse the static pod")?;
    check_telemetry(&pod["spec"]).context("the static pod")
}

/// Secrets are files that only root may read.
fn check_secrets(object: &Value) -> Result<()> {
    let mut secrets = Vec::new();
    find_key(object, "secret", &mut secrets);
    if let Some(secret) = secrets.iter().find(|it| it["defaultMode"] != 0o400) {
        bail!("others may read the files of {secret}");
    }
    let mut variables = Vec::new();
    find_key(object, "env", &mut variables);
    for variable in variables.into_iter().flat_map(list) {
        if SECRET_VARIABLES
            .iter()
            .any(|name| variable["name"] == *name)
        {
            bail!("a secret is in the environment: {variable}");
        }
    }
    Ok(())
}

/// The values of a key, wherever it is.
fn find_key<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(entries) => {
            found.extend(entries.get(key));
            entries
                .values()
                .for_each(|value| find_key(value, key, found));
        }
        Value::Array(elements) => elements
            .iter()
            .for_each(|value| find_key(value, key, found)),
        _ => {}
    }
}

/// The daemon has the documented permissions and no others; hooks have what they need.
fn check_permissions(object: &Value) -> Result<()> {
    let uninstall = json!({ "rules": [
        { "apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["patch"] },
    ]});
    let expected = match (object["kind"].as_str(), object["metadata"]["name"].as_str()) {
        (Some("ClusterRole"), Some("headcni-uninstall")) => uninstall,
        (Some("ClusterRole"), _) => documented_role()?,
        (Some("Role"), _) => {
            let is_narrow = |rule: &Value| {
                rule["resources"] == json!(["daemonsets"])
                    && rule["verbs"] == json!(["get"])
                    && list(&rule["resourceNames"]).count() == 1
            };
            if !list(&object["rules"]).all(is_narrow) {
                bail!("the Role may do more than get one DaemonSet: {object}");
            }
            return Ok(());
        }
        _ => return Ok(()),
    };
    let (actual, expected) = (permissions(object), permissions(&expected));
    if actual != expected {
        let different: Vec<_> = actual.symmetric_difference(&expected).collect();
        bail!(
            "{} differs from its documentation in {different:?}",
            object["metadata"]["name"]
        );
    }
    Ok(())
}

fn documented_role() -> Result<Value> {
    let block = DOCUMENTED_ROLE.split("```yaml\n").nth(1);
    let block = block.and_then(|rest| rest.split("```").next());
    let block = block.context("docs/kubernetes.md has no YAML block with a ClusterRole")?;
    serde_saphyr::from_str(block).context("parse the ClusterRole of docs/kubernetes.md")
}

/// Each group, resource and verb.
fn permissions(role: &Value) -> BTreeSet<[String; 3]> {
    let mut all = BTreeSet::new();
    for rule in list(&role["rules"]) {
        for group in list(&rule["apiGroups"]) {
            for resource in list(&rule["resources"]) {
                all.extend(list(&rule["verbs"]).map(|verb| {
                    [group, resource, verb].map(|it| it.as_str().unwrap_or_default().to_owned())
                }));
            }
        }
    }
    all
}

/// `headcni-daemon config check` accepts the configuration, with the container's variables.
fn check_with_daemon(config: &str, pod: &Value) -> Result<()> {
    let dir = env::temp_dir().join(format!("headcni-chart-{}", std::process::id()));
    fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
    let outcome = config_check(config, pod, &dir);
    fs::remove_dir_all(&dir).with_context(|| format!("remove {}", dir.display()))?;
    outcome
}

fn config_check(config: &str, pod: &Value, dir: &Path) -> Result<()> {
    let file = write(&dir.join("daemon.yaml"), config)?;
    let mut command = Command::new(headcni_daemon());
    with_clean_environment(&mut command).args(["config", "check", "--config", &file]);
    let daemon = list(&pod["containers"]).find(|it| it["name"] == DAEMON);
    for variable in daemon.into_iter().flat_map(|it| list(&it["env"])) {
        let (Some(name), Some(value)) = (variable["name"].as_str(), variable["value"].as_str())
        else {
            continue;
        };
        let value = match MOUNTED.iter().find_map(|dir| value.strip_prefix(dir)) {
            Some(mounted) => write(&dir.join(mounted), "invalid-key")?,
            None => value.replace("$(NODE_IP)", "192.0.2.1"),
        };
        command.env(name, value);
    }
    let output = command.output().context("start headcni-daemon")?;
    if !output.status.success() {
        bail!("headcni-daemon refuses daemon.yaml:\n{}", messages(&output));
    }
    Ok(())
}

/// To the daemon and to helm, a key that is null is absent.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Null => Value::Object(Map::new()),
        Value::Object(entries) => {
            let entries = entries.iter().filter(|(_, value)| !value.is_null());
            entries
                .map(|(key, value)| (key.clone(), without_nulls(value)))
                .collect()
        }
        other => other.clone(),
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The YAML files of a directory, sorted.
fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
    let entries = entries.with_context(|| format!("list {}", dir.display()))?;
    let mut files: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).collect();
    files.retain(|file| {
        file.extension()
            .is_some_and(|extension| extension == "yaml")
    });
    files.sort();
    if files.is_empty() {
        bail!("{} has no sets of values", dir.display());
    }
    Ok(files)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<String> {
    File::create(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("write {}", path.display()))?;
    Ok(path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_in_the_environment_or_readable_by_others_is_refused() {
        let pod = |env: &str, mode: u32| {
            let volume = json!({ "secret": { "secretName": "a", "defaultMode": mode } });
            json!({ "spec": { "containers": [{ "env": [{ "name": env }] }], "volumes": [volume] } })
        };
        check_secrets(&pod("NODE_NAME", 0o400)).unwrap();
        check_secrets(&pod("TS_AUTHKEY", 0o400)).unwrap_err();
        check_secrets(&pod("NODE_NAME", 0o644)).unwrap_err();
        check_rendered("data: {x: canary-1}", None).unwrap_err();
    }

    #[test]
    fn a_role_has_exactly_the_documented_permissions() {
        let mut role = documented_role().unwrap();
        role["kind"] = json!("ClusterRole");
        check_permissions(&role).unwrap();
        let secrets = json!({ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get"] });
        role["rules"].as_array_mut().unwrap().push(secrets.clone());
        check_permissions(&role).unwrap_err();
        let wide = json!({ "kind": "Role", "rules": [secrets] });
        check_permissions(&wide).unwrap_err();
    }

    #[test]
    fn a_tailscaled_that_sends_logs_is_refused() {
        let pod = json!({ "containers": [{ "name": "tailscaled", "args": [] }] });
        check_telemetry(&pod).unwrap_err();
        check_telemetry(&json!({ "containers": [{ "name": DAEMON }] })).unwrap();
    }

    #[test]
    fn null_is_absent() {
        assert_eq!(without_nulls(&Value::Null), json!({}));
        assert_eq!(
            without_nulls(&json!({"a": null, "b": {"c": null, "d": 1}})),
            json!({"b": {"d": 1}})
        );
    }
}
