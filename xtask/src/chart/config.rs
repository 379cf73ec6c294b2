//! The daemon's configuration: what stands in the values, as it is, and what the daemon takes.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use lab::tools::headcni_daemon;
use lab::with_clean_environment;
use serde_json::Value;

use super::object::{Rendering, container, list};
use super::shape::DAEMON_SET;

/// Where the chart puts secrets and certificates. Here they are in a directory of ours.
const MOUNTED: [&str; 2] = ["/etc/headcni-keys/", "/etc/headcni-ca/"];
/// For what only a node knows.
const ADDRESS: &str = "192.0.2.1";

/// What is wrong with it. The values are a text of YAML.
pub(super) fn faults(rendering: &Rendering, values: Option<&str>) -> Result<Vec<String>> {
    let Some(config_map) = rendering.find("ConfigMap", DAEMON_SET) else {
        return Ok(vec![format!("there is no ConfigMap {DAEMON_SET}")]);
    };
    let Some(text) = config_map.value["data"]["daemon.yaml"].as_str() else {
        return Ok(vec!["the ConfigMap has no daemon.yaml".to_owned()]);
    };
    let mut faults = Vec::new();
    if let Some(values) = values {
        let values: Value = serde_saphyr::from_str(values).context("read the values")?;
        let ours: Value = serde_saphyr::from_str(text).context("read daemon.yaml")?;
        if said(&ours) != said(&values["config"]) {
            faults.push(format!("daemon.yaml is not the values' config:\n{text}"));
        }
    }
    for copy in ["headcni-check", "headcni-uninstall"] {
        let found = rendering.find("ConfigMap", copy);
        if found.is_some_and(|it| it.value["data"]["daemon.yaml"] != *text) {
            faults.push(format!("ConfigMap {copy} has another daemon.yaml"));
        }
    }
    faults.extend(verdict(rendering, text)?);
    Ok(faults)
}

/// Without what is not said: to the daemon and to Helm, null is nothing.
fn said(value: &Value) -> Value {
    match value {
        Value::Null => Value::Object(serde_json::Map::new()),
        Value::Object(entries) => {
            let entries = entries.iter().filter(|(_, value)| !value.is_null());
            Value::Object(
                entries
                    .map(|(key, value)| (key.clone(), said(value)))
                    .collect(),
            )
        }
        other => other.clone(),
    }
}

/// What the daemon says against it, with the variables that its container has.
fn verdict(rendering: &Rendering, text: &str) -> Result<Option<String>> {
    let dir = std::env::temp_dir().join(format!("headcni-chart-{}", std::process::id()));
    fs::create_dir_all(&dir).with_context(|| format!("make {}", dir.display()))?;
    let outcome = ask(rendering, text, &dir);
    fs::remove_dir_all(&dir).with_context(|| format!("remove {}", dir.display()))?;
    outcome
}

fn ask(rendering: &Rendering, text: &str, dir: &Path) -> Result<Option<String>> {
    let file = write(&dir.join("daemon.yaml"), text)?;
    let mut command = Command::new(headcni_daemon());
    with_clean_environment(&mut command).args(["config", "check", "--config", &file]);
    let daemon_set = rendering.find("DaemonSet", DAEMON_SET);
    let pod = daemon_set.and_then(|it| it.pod_spec());
    let daemon = pod.and_then(|pod| container(pod, DAEMON_SET));
    for variable in daemon.into_iter().flat_map(|it| list(&it["env"])) {
        let (Some(name), Some(value)) = (variable["name"].as_str(), variable["value"].as_str())
        else {
            continue;
        };
        let value = match MOUNTED.iter().find_map(|place| value.strip_prefix(place)) {
            Some(mounted) => write(&dir.join(mounted), "a-key-of-no-use")?,
            None => value.replace("$(NODE_IP)", ADDRESS),
        };
        command.env(name, value);
    }
    let output = command.output().context("start headcni-daemon")?;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok((!output.status.success()).then(|| format!("headcni-daemon says of daemon.yaml:\n{told}")))
}

fn write(path: &Path, text: &str) -> Result<String> {
    File::create(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("write {}", path.display()))?;
    Ok(path.display().to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_null_is_not_said() {
        assert_eq!(said(&Value::Null), json!({}));
        assert_eq!(
            said(&json!({"a": null, "b": {"c": null, "d": 1}})),
            json!({"b": {"d": 1}})
        );
    }
}
