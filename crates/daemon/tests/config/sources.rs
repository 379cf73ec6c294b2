//! Precedence and errors of configuration sources.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::Duration;

use lab::{Netns, Node};
use node_config::{Config, FlagValue, load, show};
use rstest::rstest;
use serde_json::Value;

use crate::docs_and_schema::{Key, keys};
use crate::fixture::{ConfigDir, run, sources};

#[test]
fn flags_override_variables_and_variables_override_the_file() {
    let dir =
        ConfigDir::new("network: {mtu: 1300}\nlogging: {level: warn}\ncni: {name: of-file}\n");
    let environment = [
        ("HEADCNID_NETWORK_MTU", "1400"),
        ("HEADCNID_LOGGING_LEVEL", "error"),
    ];
    let answer = dir.run(&["config", "show", "--mtu", "1500"], &environment);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let of_file = format!("  name: of-file  # {}:3", dir.file().display());
    for line in [
        "  mtu: 1500  # --mtu",
        "  level: error  # HEADCNID_LOGGING_LEVEL",
        "  format: text",
        &of_file,
    ] {
        let found = answer.out.lines().any(|shown| shown == line);
        assert!(found, "{line:?} in {}", answer.out);
    }
}

/// A non-default value for the key's variable, as text and as JSON.
fn other_value(key: &Key, dir: &ConfigDir) -> (String, Value) {
    let texts = |items: &[&str]| (items.join(","), Value::from(items.to_vec()));
    match key.path.as_str() {
        "cni.name" | "ipam.type" | "cni.bridge.name" | "tailscale.interface" => {
            ("another".into(), "another".into())
        }
        "tailscale.socket" | "tailscale.program" | "tailscale.stateDir" | "headscale.caFile" => {
            ("/a/b".into(), "/a/b".into())
        }
        "tailscale.port" => ("41999".into(), 41999.into()),
        "tailscale.tags" => texts(&["tag:a", "tag:b"]),
        // Mode `daemon` needs a server as well.
        "tailscale.mode" => ("off".into(), "off".into()),
        "headscale.apiKeyFile" | "headscale.preAuthKeyFile" => {
            let file = dir.write("key", "k").display().to_string();
            (file.clone(), file.into())
        }
        "network.podCIDR.perNode" => ("/25,/80".into(), "/25,/80".into()),
        "network.podCIDR.base" => texts(&["10.244.0.0/16", "fd00::/56"]),
        "monitoring.address" => ("[::1]:0".into(), "[::1]:0".into()),
        "pods.orphanInterval" | "pods.orphanGrace" => ("1h30m".into(), "1h30m".into()),
        "network.mtu" => ("1500".into(), 1500.into()),
        "network.enableIPv6" | "kubernetes.enabled" => ("true".into(), true.into()),
        _ => match (&key.schema["default"], &key.schema["oneOf"]) {
            (Value::Bool(flag), _) => ((!flag).to_string(), (!flag).into()),
            (default, Value::Array(choices)) => {
                let mut words = choices.iter().map(|choice| &choice["const"]);
                let word = words.find(|word| *word != default).unwrap();
                (word.as_str().unwrap().to_owned(), word.clone())
            }
            _ => match &key.schema["examples"][0] {
                Value::String(text) => (text.clone(), text.as_str().into()),
                Value::Array(items) if items[0].is_string() => {
                    let items: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
                    texts(&items)
                }
                other => (other.to_string(), other.clone()),
            },
        },
    }
}

#[test]
fn every_key_except_maps_has_a_variable() {
    let dir = ConfigDir::empty();
    let mut without = Vec::new();
    for key in keys() {
        let Some(variable) = &key.variable else {
            without.push(key.path);
            continue;
        };
        let (text, value) = other_value(&key, &dir);
        let loaded = load(&sources(&[(variable, &text)]));
        let loaded = loaded.unwrap_or_else(|error| panic!("{variable}={text}: {error}"));
        let config = serde_json::to_value(&loaded.config).unwrap();
        let pointer = format!("/{}", key.path.replace('.', "/"));
        assert_eq!(config.pointer(&pointer), Some(&value), "{variable}={text}");
        assert_ne!(
            value, key.schema["default"],
            "{variable} was tried with the default"
        );
        let shown = show(&loaded);
        assert!(shown.contains(&format!("  # {variable}\n")), "{shown}");
    }
    assert_eq!(without, ["network.podCIDR.nodes"]);
}

#[rstest]
#[case("HEADCNID_NETWORK_MTUU", "did you mean HEADCNID_NETWORK_MTU?")]
#[case(
    "HEADCNID_HEADSCALE_APIKEY",
    "did you mean HEADCNID_HEADSCALE_API_KEY?"
)]
#[case("HEADCNID_NETWORK_POD_CIDR_NODES", "unknown variable")]
#[case("HEADCNID_", "list all with headcni-daemon config example")]
fn an_unknown_variable_is_refused(#[case] name: &str, #[case] words: &str) {
    let answer = ConfigDir::new("").run(&["config", "check"], &[(name, "canary")]);
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(
        answer.err.starts_with(&format!("{name}: ")),
        "{}",
        answer.err
    );
    assert!(answer.err.contains(words), "{}", answer.err);
    assert!(!answer.err.contains("canary"), "{}", answer.err);
}

#[rstest]
#[case("HEADCNID_NETWORK_MTU", "big", "network.mtu: must be a whole number")]
#[case(
    "HEADCNID_NETWORK_MASQUERADE",
    "1",
    "network.masquerade: must be true or false"
)]
#[case(
    "HEADCNID_NETWORK_POD_CIDR_BASE",
    "10.244.0.0/16,x",
    "network.podCIDR.base: not a CIDR"
)]
#[case(
    "HEADCNID_CNI_CNI_PLUGINS",
    "tuning",
    "cni.cniPlugins: must be a list of mappings"
)]
#[case("HEADCNID_PODS_ORPHAN_GRACE", "1s", "pods.orphanGrace: too short")]
#[case(
    "HEADCNID_NETWORK_SERVICE_CIDR",
    "10.244.0.0/24",
    "network.serviceCIDR: 10.244.0.0/24 overlaps"
)]
fn the_error_of_a_variable_names_it(#[case] name: &str, #[case] value: &str, #[case] words: &str) {
    let dir = ConfigDir::new("network: {podCIDR: {base: 10.244.0.0/16}}\n");
    let answer = dir.run(&["config", "check"], &[(name, value)]);
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(
        answer.err.starts_with(&format!("{name}: {words}")),
        "{}",
        answer.err
    );
}

#[test]
fn the_error_of_a_flag_names_it() {
    let answer = ConfigDir::new("").run(&["config", "check", "--cni-mode", "x"], &[]);
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(
        answer
            .err
            .starts_with("--cni-mode: cni.mode: must be one of"),
        "{}",
        answer.err
    );
}

#[test]
fn an_empty_variable_is_ignored() {
    let environment = [
        ("HEADCNID_NETWORK_MTU", ""),
        ("HEADCNID_HEADSCALE_API_KEY", ""),
    ];
    let loaded = load(&sources(&environment)).unwrap();
    assert_eq!(loaded.config, Config::default());
    assert_eq!(loaded.secrets.api_key, None);
}

#[test]
fn unrelated_variables_are_ignored() {
    let environment = [
        ("NODE_POD_CIDR", "10.1.0.0/24"),
        ("NODE_NAME", "x"),
        ("HEADCNI_MTU", "x"),
        ("HEADCNI_DAEMON_PORT", "tcp://10.0.0.1"),
    ];
    assert_eq!(
        load(&sources(&environment)).unwrap().config,
        Config::default()
    );
}

#[test]
fn a_variable_that_is_not_utf_8_is_refused() {
    let mut sources = sources(&[]);
    let value = OsString::from_vec(vec![0xff]);
    sources
        .environment
        .push(("HEADCNID_CNI_NAME".into(), value));
    let error = load(&sources).unwrap_err().to_string();
    assert!(
        error.starts_with("HEADCNID_CNI_NAME: is not UTF-8"),
        "{error}"
    );
}

#[test]
fn every_flag_sets_its_key() {
    let flags = [
        ("--log-level", "debug", "  level: debug"),
        ("--log-format", "json", "  format: json"),
        (
            "--monitoring-address",
            "127.0.0.1:0",
            "  address: \"127.0.0.1:0\"",
        ),
        ("--cni-mode", "bridge", "  mode: bridge"),
        ("--mtu", "1501", "  mtu: 1501"),
    ];
    let mut words = vec!["config", "show"];
    words.extend(flags.iter().flat_map(|(flag, value, _)| [*flag, *value]));
    let shown = ConfigDir::new("").run(&words, &[]).out;
    for (flag, _, line) in flags {
        assert!(
            shown.contains(&format!("{line}  # {flag}\n")),
            "{flag} in {shown}"
        );
    }
}

#[test]
fn flags_set_the_keys_that_they_name() {
    let mut sources = sources(&[]);
    sources.flags = vec![FlagValue {
        flag: "--mtu",
        key: "network.mtu",
        text: "1501".to_owned(),
    }];
    assert_eq!(load(&sources).unwrap().config.network.mtu, 1501);
}

#[test]
fn the_default_file_is_optional() {
    let node = Node::new("usual-place").unwrap();
    let binary = env!("CARGO_BIN_EXE_headcni-daemon");
    let check = |words: &[&str]| {
        let output = node.command(binary).args(words).output().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    node.run(["rm", "-rf", "/etc/headcni"]).unwrap();
    let absent = check(&["config", "check"]);
    assert_eq!(
        absent,
        "the configuration is valid (no /etc/headcni/daemon.yaml)\n"
    );
    node.run([
        "sh",
        "-c",
        "mkdir /etc/headcni && echo 'x: 1' > /etc/headcni/daemon.yaml",
    ])
    .unwrap();
    let there = check(&["config", "check"]);
    assert!(
        there.starts_with("/etc/headcni/daemon.yaml:1:1: x: unknown key"),
        "{there}"
    );
}

#[test]
fn a_missing_file_from_a_flag_is_an_error() {
    let answer = ConfigDir::empty().check();
    assert_eq!(answer.code, Some(1));
    assert!(
        answer.err.contains("daemon.yaml: no such file"),
        "{}",
        answer.err
    );
    assert!(answer.err.contains("omit --config"), "{}", answer.err);
    let dir = ConfigDir::empty();
    symlink("/nonexistent", dir.file()).unwrap();
    assert!(dir.check().err.contains("no such file"));
}

#[test]
fn a_symlink_is_followed() {
    let dir = ConfigDir::empty();
    let real = dir.write("real.yaml", "network: {mtu: 1400}\n");
    symlink(real, dir.file()).unwrap();
    assert_eq!(dir.load(&[]).unwrap().config.network.mtu, 1400);
}

#[rstest]
#[case("/proc/self", "a directory")]
#[case("/dev/zero", "not a file")]
#[case("/proc/self/mem", "can't be read")]
fn a_path_that_is_not_a_file_is_refused(#[case] path: &str, #[case] words: &str) {
    let words_of = ["config", "check", "--config", path].map(OsStr::new);
    let answer = run(words_of, &[]);
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(
        answer.err.starts_with(path) && answer.err.contains(words),
        "{}",
        answer.err
    );
}

#[test]
fn a_named_pipe_is_refused_without_blocking() {
    let dir = ConfigDir::empty();
    let made = Command::new("mkfifo").arg(dir.file()).status().unwrap();
    assert!(made.success());
    let mut child = Command::new(env!("CARGO_BIN_EXE_headcni-daemon"))
        .args(["config", "check", "--config"])
        .arg(dir.file())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let ended = lab::eventually(lab::DEADLINE, "the end of the check", || {
        child.try_wait().unwrap()
    });
    // Fails only if the child has ended.
    let _ = child.kill();
    child.wait().unwrap();
    assert_eq!(ended.unwrap().code(), Some(1));
}

#[test]
fn a_file_larger_than_a_mebibyte_is_refused() {
    let largest = "#".repeat(1024 * 1024);
    assert!(ConfigDir::new(&largest).load(&[]).is_ok());
    let error = ConfigDir::new(&(largest + "#"))
        .load(&[])
        .unwrap_err()
        .to_string();
    assert!(error.contains("larger than 1048576 bytes"), "{error}");
}

#[test]
fn a_file_that_is_not_utf_8_is_refused_with_its_position() {
    let dir = ConfigDir::empty();
    dir.write("daemon.yaml", b"network:\n  mtu: 1\xff\n");
    let error = dir.load(&[]).unwrap_err().to_string();
    assert!(error.contains("daemon.yaml:2:9: not UTF-8"), "{error}");
}

#[test]
fn ten_thousand_nodes_are_parsed_in_time() {
    let node = |n: usize| format!("      node-{n}: 10.{}.{}.0/24\n", 1 + n / 256, n % 256);
    let nodes = (0..10_000).map(node).collect::<Vec<_>>().concat();
    let dir = ConfigDir::new(&format!("network:\n  podCIDR:\n    nodes:\n{nodes}"));
    let began = std::time::Instant::now();
    let loaded = dir.load(&[]).unwrap();
    assert_eq!(loaded.config.network.pod_cidr.nodes.len(), 10_000);
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
}
