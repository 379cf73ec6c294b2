use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Instant;

use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::{CniArgs, ContainerId, IfName};

/// A directory with one plugin in it, a shell script.
struct Plugin {
    directory: TempDir,
    kind: PluginType,
}

impl Plugin {
    fn new(script: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("fake");
        // Written by another process: were it open for writing here, a test that forks at this
        // moment would hold it open, and executing it would fail with ETXTBSY.
        let mut writer = std::process::Command::new("sh")
            .args(["-c", "cat > \"$0\"", path.to_str().unwrap()])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        writer
            .stdin
            .take()
            .unwrap()
            .write_all(format!("#!/bin/sh\n{script}\n").as_bytes())
            .unwrap();
        assert!(writer.wait().unwrap().success());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Self {
            directory,
            kind: PluginType::new("type", "fake").unwrap(),
        }
    }

    fn env(&self) -> Env {
        [
            ("CNI_PATH", self.directory.path().to_str().unwrap()),
            ("PATH", "/usr/bin:/bin"),
        ]
        .into_iter()
        .collect()
    }

    fn add(&self, env: &Env, timeout: Duration) -> Result<NetResult, Error> {
        let delegate = Delegate {
            kind: &self.kind,
            env,
            timeout,
        };
        let conf = json!({ "name": "net", "kept": { "a": 1 } });
        delegate
            .add(conf.as_object().unwrap(), Version::V1_0_0, &attachment())
            .map_err(DelegateError::into_error)
    }

    fn file(&self, name: &str) -> String {
        fs::read_to_string(self.directory.path().join(name)).unwrap()
    }
}

fn attachment() -> Attachment {
    Attachment {
        container: ContainerId::new("box").unwrap(),
        ifname: IfName::new("eth0").unwrap(),
        netns: Some("/run/netns/box".to_owned()),
        args: CniArgs::parse("A=1").unwrap(),
    }
}

const LONG: Duration = Duration::from_secs(30);

#[test]
fn the_whole_environment_and_configuration_reach_the_plugin() {
    let plugin = Plugin::new(
        r#"cat > "$CNI_PATH/stdin"; env > "$CNI_PATH/env"; echo '{"cniVersion":"1.0.0"}'"#,
    );
    let env = plugin
        .env()
        .with("FOREIGN", "kept")
        .with("CNI_COMMAND", "DEL");
    plugin.add(&env, LONG).unwrap();
    let stdin: Value = serde_json::from_str(&plugin.file("stdin")).unwrap();
    assert_eq!(stdin, json!({ "name": "net", "kept": { "a": 1 } }));
    let seen = plugin.file("env");
    for line in [
        "FOREIGN=kept",
        "CNI_COMMAND=ADD",
        "CNI_CONTAINERID=box",
        "CNI_IFNAME=eth0",
        "CNI_NETNS=/run/netns/box",
        "CNI_ARGS=A=1",
    ] {
        assert!(
            seen.lines().any(|seen| seen == line),
            "{line} is not in {seen}"
        );
    }
}

#[test]
fn a_plugin_s_own_error_is_kept() {
    let plugin = Plugin::new(r#"echo '{"code":11,"msg":"busy","details":"d"}'; exit 1"#);
    let error = plugin.add(&plugin.env(), LONG).unwrap_err();
    assert_eq!((error.code, error.msg.as_str()), (11, "fake: busy"));
    assert_eq!(error.details, "d");
}

#[test]
fn garbage_silence_and_death_are_told_apart() {
    for (script, part) in [
        ("echo hello", "hello"),
        ("exit 0", "nothing on stdout"),
        ("exit 3", "exit status: 3"),
        ("kill -9 $$", "signal: 9"),
        (r#"echo '{"cniVersion":"7.7.7"}'"#, "7.7.7"),
        (r#"echo '{"ips":[{"address":"x"}]}'"#, "x"),
        (r"printf '\377\376'; exit 1", "exit status: 1"),
    ] {
        let plugin = Plugin::new(script);
        let error = plugin.add(&plugin.env(), LONG).unwrap_err();
        assert_eq!(error.code, code::DELEGATE_BROKEN, "{script}: {error}");
        assert!(
            error.msg.contains(part) && error.msg.contains("fake"),
            "{script}: {error}"
        );
    }
}

#[test]
fn a_plugin_that_prints_without_end_is_ended() {
    let plugin = Plugin::new("while :; do head -c 1000000 /dev/zero; done");
    let error = plugin.add(&plugin.env(), LONG).unwrap_err();
    assert_eq!(error.code, code::DELEGATE_BROKEN);
}

#[test]
fn a_plugin_that_hangs_is_ended_with_all_its_children() {
    // The grandchild would write the file long after the deadline. That it holds stdout open
    // must not matter either.
    for script in [
        r#"(sleep 1; touch "$CNI_PATH/late") & sleep 600"#,
        r#"exec >&-; (sleep 1; touch "$CNI_PATH/late") & sleep 600"#,
    ] {
        let plugin = Plugin::new(script);
        let started = Instant::now();
        let error = plugin
            .add(&plugin.env(), Duration::from_millis(200))
            .unwrap_err();
        assert_eq!(error.code, code::DELEGATE_TIMEOUT, "{error}");
        assert!(
            error.msg.contains("0.2 s") && error.msg.contains("fake"),
            "{error}"
        );
        assert!(started.elapsed() < Duration::from_mins(1));
        thread_sleep_until(started + Duration::from_millis(1500));
        assert!(!plugin.directory.path().join("late").exists());
    }
}

/// That something does *not* happen can only be seen by waiting.
fn thread_sleep_until(moment: Instant) {
    std::thread::sleep(moment.saturating_duration_since(Instant::now()));
}

#[test]
fn a_plugin_that_never_reads_a_large_configuration_does_not_block() {
    let plugin = Plugin::new(r#"echo '{"cniVersion":"1.0.0"}'"#);
    let conf = json!({ "name": "net", "large": "x".repeat(1_000_000) });
    let env = plugin.env();
    let delegate = Delegate {
        kind: &plugin.kind,
        env: &env,
        timeout: LONG,
    };
    delegate
        .add(conf.as_object().unwrap(), Version::V1_0_0, &attachment())
        .unwrap();
}

#[test]
fn the_first_directory_that_has_the_plugin_wins() {
    let (first, second) = (Plugin::new("exit 3"), Plugin::new("exit 4"));
    let empty = TempDir::new().unwrap();
    let directories = [&empty, &first.directory, &second.directory];
    let path = std::env::join_paths(directories.map(TempDir::path)).unwrap();
    let error = first
        .add(&first.env().with("CNI_PATH", path), LONG)
        .unwrap_err();
    assert!(error.msg.contains("exit status: 3"), "{error}");
}

#[test]
fn a_missing_plugin_is_named_together_with_where_it_was_looked_for() {
    let plugin = Plugin::new("");
    let elsewhere = TempDir::new().unwrap();
    // A directory of that name is no plugin.
    fs::create_dir(elsewhere.path().join("fake")).unwrap();
    let env = plugin.env().with("CNI_PATH", elsewhere.path());
    let error = plugin.add(&env, LONG).unwrap_err();
    assert_eq!(error.code, code::INVALID_CONFIG);
    assert!(error.msg.contains("fake"), "{error}");
    assert!(
        error.msg.contains(elsewhere.path().to_str().unwrap()),
        "{error}"
    );

    let error = plugin.add(&Env::default(), LONG).unwrap_err();
    assert_eq!(error.code, code::INVALID_ENVIRONMENT);
    assert!(error.msg.contains("CNI_PATH"), "{error}");
}

#[test]
fn a_file_that_cannot_be_executed_is_named() {
    let plugin = Plugin::new("");
    let path = plugin.directory.path().join("fake");
    File::open(&path)
        .unwrap()
        .set_permissions(fs::Permissions::from_mode(0o644))
        .unwrap();
    let error = plugin.add(&plugin.env(), LONG).unwrap_err();
    assert_eq!(error.code, code::DELEGATE_BROKEN);
    assert!(error.msg.contains(path.to_str().unwrap()), "{error}");
}
