//! Example, schema, `show` and documentation agree with the binary.

use std::collections::BTreeSet;
use std::ffi::OsStr;

use node_config::{Config, RESTART_KEYS, load, show};
use serde_json::Value;

use crate::fixture::{ConfigDir, repository, run, sources};

pub(crate) struct Key {
    pub(crate) path: String,
    pub(crate) schema: Value,
    /// The environment variable in the documentation.
    pub(crate) variable: Option<String>,
}

impl Key {
    /// A configuration with only this key.
    pub(crate) fn with(&self, value: &str) -> String {
        let names = self.path.rsplit('.');
        names.fold(value.to_owned(), |inner, name| {
            format!("{{{name}: {inner}}}")
        })
    }
}

fn print(command: &str) -> String {
    let answer = run(["config", command].map(OsStr::new), &[]);
    assert_eq!(
        (answer.code, answer.err.as_str()),
        (Some(0), ""),
        "{answer:?}"
    );
    answer.out
}

fn schema() -> Value {
    serde_json::from_str(&print("schema")).unwrap()
}

/// All keys of the schema, with their documentation.
pub(crate) fn keys() -> Vec<Key> {
    fn collect(schema: &Value, path: &str, keys: &mut Vec<Key>) {
        for (name, schema) in schema["properties"].as_object().unwrap() {
            let path = format!("{path}{name}");
            if schema["properties"].is_object() {
                collect(schema, &format!("{path}."), keys);
            } else {
                keys.push(Key {
                    variable: documented(&path).1,
                    path,
                    schema: schema.clone(),
                });
            }
        }
    }
    let mut keys = Vec::new();
    collect(&schema(), "", &mut keys);
    keys
}

/// Default and variable of a key in the documentation's tables.
fn documented(path: &str) -> (String, Option<String>) {
    let document = repository("docs/configuration.md");
    let start = format!("| `{path}` | ");
    let row = document.lines().find(|line| line.starts_with(&start));
    let row = row.unwrap_or_else(|| panic!("docs/configuration.md has no row for {path}"));
    let mut cells = row.split(" | ").skip(1);
    let default = cells.next().unwrap().trim_matches('`').to_owned();
    let variable = cells.next().unwrap().trim_matches('`').to_owned();
    (
        default,
        Some(variable).filter(|name| name.starts_with("HEADCNID_")),
    )
}

#[test]
fn every_key_is_documented_with_its_default() {
    let keys = keys();
    for key in &keys {
        let default = &key.schema["default"];
        let (output, _) = documented(&key.path);
        let documented_value: Value = serde_saphyr::from_str(&output).unwrap();
        assert_eq!(&documented_value, default, "{}", key.path);
    }
    let known: BTreeSet<&str> = keys.iter().map(|key| key.path.as_str()).collect();
    let document = repository("docs/configuration.md");
    let rows = document.lines();
    let rows = rows.filter(|row| row.starts_with("| `") && row.contains(" | `HEADCNID_"));
    for row in rows {
        let path = row.trim_start_matches("| `").split('`').next().unwrap();
        assert!(known.contains(path), "{row}");
    }
}

#[test]
fn keys_that_need_a_restart_are_documented() {
    let document = repository("docs/configuration.md");
    let (_, reload) = document.split_once("\n## Reload\n").unwrap();
    let reload = reload.split("\n## ").next().unwrap();
    for key in keys() {
        let is_listed = reload.contains(&format!("- `{}`", key.path));
        assert_eq!(
            is_listed,
            RESTART_KEYS.contains(&key.path.as_str()),
            "{}",
            key.path
        );
    }
}

#[test]
fn generated_files_in_the_repository_are_current() {
    assert_eq!(
        repository("deploy/daemon/headcni-daemon.yaml"),
        print("example")
    );
    assert_eq!(
        repository("deploy/daemon/headcni-daemon.schema.json"),
        print("schema")
    );
}

#[test]
fn the_example_is_the_default_configuration() {
    let loaded = ConfigDir::new(&print("example")).load(&[]).unwrap();
    assert_eq!(loaded.config, Config::default());
    assert_eq!(loaded.warnings, []);
}

#[test]
fn the_example_has_every_key_of_the_schema_and_no_other() {
    fn paths(value: &Value, schema: &Value, path: &str, all: &mut BTreeSet<String>) {
        for (name, value) in value.as_object().unwrap() {
            let (path, schema) = (format!("{path}.{name}"), &schema["properties"][name]);
            if schema["properties"].is_object() {
                paths(value, schema, &path, all);
            }
            all.insert(path);
        }
    }
    fn names(schema: &Value, path: &str, all: &mut BTreeSet<String>) {
        for (name, schema) in schema["properties"].as_object().unwrap() {
            let path = format!("{path}.{name}");
            if schema["properties"].is_object() {
                assert_eq!(schema["additionalProperties"], false, "{path}");
                names(schema, &path, all);
            }
            all.insert(path);
        }
    }
    let (mut written, mut known) = (BTreeSet::new(), BTreeSet::new());
    let example: Value = serde_saphyr::from_str(&print("example")).unwrap();
    paths(&example, &schema(), "", &mut written);
    names(&schema(), "", &mut known);
    assert_eq!(written, known);
}

#[test]
fn every_example_value_in_the_schema_is_accepted() {
    for key in keys() {
        let example = &key.schema["examples"][0];
        // Files that would have to exist.
        if example.is_null() || key.path.ends_with("KeyFile") {
            continue;
        }
        let yaml = key.with(&example.to_string());
        let loaded = ConfigDir::new(&yaml).load(&[]);
        assert!(loaded.is_ok(), "{yaml}: {loaded:?}");
    }
}

#[test]
fn the_output_of_show_is_the_same_configuration() {
    let dir = ConfigDir::new(
        r#"
network:
  podCIDR: {base: [10.244.0.0/16, "fd00:10:244::/56"], nodes: {n-1: 10.244.1.0/24, "2": "fd00:10:244::/64"}, perNode: /25}
  serviceCIDR: 10.96.0.0/16
  unmanagedLinks: off
cni:
  name: "on"
  logFile: "/var/log/a b # \"c\" \\ \u00e4.log"
  cniPlugins:
    - {type: tuning, sysctl: {net.core.somaxconn: "4096"}, x: [1, 1.5, null, "\t", "\u2028"]}
dns: {magicDNS: {enable: true, nameservers: [10.2.0.1], searchDomains: [c.example.org]}}
monitoring: {address: "[::1]:9844"}
"#,
    );
    let loaded = dir
        .load(&[("HEADCNID_PODS_ORPHAN_GRACE", "1h30m")])
        .unwrap();
    let shown = show(&loaded);
    let again = ConfigDir::new(&shown).load(&[]).unwrap();
    assert_eq!(again.config, loaded.config, "{shown}");
    let line = format!(
        "      n-1: \"10.244.1.0/24\"  # {}:3\n",
        dir.file().display()
    );
    assert!(shown.contains(&line), "{line} in {shown}");
}

#[test]
fn default_keys_have_no_comment() {
    let shown = show(&load(&sources(&[])).unwrap());
    let comments = shown.lines().filter(|line| line.contains("  # ")).count();
    // Comments about secrets.
    assert_eq!(comments, 2, "{shown}");
}

#[test]
fn help_lists_every_command_and_version_is_printed() {
    let help = run([OsStr::new("--help")], &[]);
    for word in [
        "run",
        "config",
        "podcidr",
        "uninstall",
        "--config",
        "--node-name",
        "HEADCNID_",
    ] {
        assert!(help.out.contains(word), "{word} in {}", help.out);
    }
    let version = run([OsStr::new("--version")], &[]);
    assert_eq!(
        version.out,
        concat!("headcni-daemon ", env!("CARGO_PKG_VERSION"), "\n")
    );
    let nonsense = run([OsStr::new("confg")], &[]);
    assert_eq!(nonsense.code, Some(2), "{nonsense:?}");
}
