//! Keys appear in no log, response, process argument or readable file during the whole life of a
//! node.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use api::http::HttpClient;
use api::messages::Resource;
use lab::scenario::{JOIN_TIMEOUT, MeshCluster, MeshNode, NODE_TAG};
use lab::{Join, Netns, TAILSCALED_SOCKET, Tailscaled, eventually};
use rstest::rstest;

/// Prefixes of all keys of Headscale and private keys of Tailscale.
const KEY_PREFIXES: [&str; 3] = ["hskey-api-", "hskey-auth-", "privkey:"];
/// A key that Headscale never issued.
const UNKNOWN_KEY: &str =
    "hskey-api-strangestran-strangestrangestrangestrangestrangestrangestrangestrange";
/// All directories that headcni writes to.
const DIRECTORIES: [&str; 4] = [
    "/run/headcni",
    "/var/lib/headcni",
    "/etc/cni",
    "/var/lib/cni",
];
const API_KEY_FILE: &str = "/etc/headcni/api-key";
const AUTH_KEY_FILE: &str = "/etc/headcni/auth-key";
const PLUGIN_LOG: &str = "/var/log/headcni-plugin.log";
/// The log of our tailscaled, and its rotated file.
const TAILSCALED_LOGS: [&str; 2] = [
    "/var/lib/headcni/tailscale/tailscaled.log",
    "/var/lib/headcni/tailscale/tailscaled.log.1",
];
const LARGE_LOG_BYTES: usize = 8 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Managed,
    ManagedNetns,
    Host,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum KeySource {
    Files,
    Variables,
}

struct Keys {
    api: String,
    auth: String,
}

#[rstest]
#[case::managed_with_files(Mode::Managed, KeySource::Files)]
#[case::managed_netns_with_variables(Mode::ManagedNetns, KeySource::Variables)]
#[case::host_with_variables(Mode::Host, KeySource::Variables)]
fn keys_never_leak_during_the_life_of_a_node(#[case] mode: Mode, #[case] source: KeySource) {
    let mut cluster = MeshCluster::prepare(1);
    let watch = ArgumentWatch::start(&cluster.nodes[0]);
    let mut hosts = (mode == Mode::Host).then(|| join(&cluster));
    let keys = Keys {
        api: read(&cluster.nodes[0].file(API_KEY_FILE)),
        // It is not needed, but read.
        auth: cluster.headscale.preauth_key(NODE_TAG).unwrap(),
    };
    configure(&cluster, mode, source, &keys);
    let node = &mut cluster.nodes[0];
    match source {
        KeySource::Files => node.start_daemon().unwrap(),
        KeySource::Variables => node
            .start_daemon_with_env(&[
                ("HEADCNID_HEADSCALE_API_KEY", &keys.api),
                ("HEADCNID_HEADSCALE_PRE_AUTH_KEY", &keys.auth),
            ])
            .unwrap(),
    }
    node.await_ready(JOIN_TIMEOUT).unwrap();

    let mut outputs: Vec<(String, String)> = Vec::new();
    let pod = node.pod("p").unwrap();
    match &mut hosts {
        None => cause_faults(&mut cluster),
        Some(hosts) => cause_faults_with_host_tailscaled(&mut cluster, hosts),
    }
    if source == KeySource::Files {
        an_unknown_key_is_refused(&cluster.nodes[0], &keys.api);
    }
    let node = &mut cluster.nodes[0];
    node.await_ready(JOIN_TIMEOUT).unwrap();
    outputs.extend(answers(node));
    node.detach(&pod).unwrap();
    outputs.extend(readable_by_others(node));
    outputs.push(("the plugin's log".to_owned(), read(&node.file(PLUGIN_LOG))));
    outputs.extend(tailscaled_output(node, hosts.as_ref()));
    let daemon = environment(node.daemon_pid().unwrap());
    let is_found = [&keys.api, &keys.auth].map(|key| daemon.contains(key));
    assert_eq!(
        is_found,
        [source == KeySource::Variables; 2],
        "where the keys are"
    );
    node.stop_daemon().unwrap();
    let log = node.log();
    assert!(log.contains("DEBUG"), "the log has no details");
    outputs.push(("the log".to_owned(), log));
    outputs.push(command(node, &["uninstall"]));
    outputs.extend(watch.end());
    check(&outputs, &keys);
}

fn check(outputs: &[(String, String)], keys: &Keys) {
    let secrets = KEY_PREFIXES.iter().copied();
    let secrets = secrets.chain([keys.api.as_str(), &keys.auth, UNKNOWN_KEY]);
    for (place, text) in outputs {
        // A file may be empty, and an exiting process has no arguments.
        let may_be_empty = place.starts_with("/proc/") || place == "arguments";
        assert!(may_be_empty || !text.is_empty(), "{place} is empty");
        for secret in secrets.clone() {
            // The text must not be printed: CI logs are public.
            let kind = secret.get(..10).unwrap_or(secret);
            assert!(!text.contains(secret), "{place} has a key ({kind})");
        }
    }
    let arguments = outputs.iter().filter(|(place, _)| place == "arguments");
    assert!(arguments.count() > 1, "no process was seen");
}

/// A host tailscaled that has joined already.
fn join(cluster: &MeshCluster) -> Tailscaled {
    let headscale = &cluster.headscale;
    let hosts = Tailscaled::start(&cluster.nodes[0].node, headscale.ca_file()).unwrap();
    let join = Join {
        url: &headscale.url(),
        key: &headscale.preauth_key(NODE_TAG).unwrap(),
        advertise: &[],
    };
    hosts.join(&join).unwrap();
    hosts
}

/// Configures all logs at debug level.
fn configure(cluster: &MeshCluster, mode: Mode, source: KeySource, keys: &Keys) {
    let node = &cluster.nodes[0];
    let config = node.config(&cluster.headscale.url());
    let line = format!("  apiKeyFile: {API_KEY_FILE}\n");
    assert!(config.contains(&line), "{config}");
    let config = match source {
        KeySource::Files => {
            node.node.write(AUTH_KEY_FILE, &keys.auth).unwrap();
            node.sh(&format!("chmod 0600 {AUTH_KEY_FILE}")).unwrap();
            config.replace(&line, &format!("{line}  preAuthKeyFile: {AUTH_KEY_FILE}\n"))
        }
        KeySource::Variables => {
            node.sh(&format!("rm {API_KEY_FILE}")).unwrap();
            config.replace(&line, "")
        }
    };
    let tailscaled = match mode {
        Mode::Managed => String::new(),
        Mode::ManagedNetns => "  netns: own\n".to_owned(),
        Mode::Host => format!("  mode: host\n  socket: {TAILSCALED_SOCKET}\n"),
    };
    let logs = format!("cni: {{logFile: {PLUGIN_LOG}}}\nlogging: {{level: debug}}\n");
    node.configure(&format!("{config}{tailscaled}{logs}"))
        .unwrap();
    if mode != Mode::Host {
        // Enough to be rotated at the next start.
        let much = "much\n".repeat(LARGE_LOG_BYTES / 5);
        node.node.write(TAILSCALED_LOGS[0], much).unwrap();
    }
}

/// Faults that produce log messages.
fn cause_faults(cluster: &mut MeshCluster) {
    cluster.headscale.expire_node("node-1").unwrap();
    let node = &cluster.nodes[0];
    eventually(JOIN_TIMEOUT, "it has joined again", || {
        let logins = node.log().matches("joined the mesh").count();
        (logins > 1).then_some(())
    })
    .unwrap();
    let pid = node.tailscaled_pid().unwrap().to_string();
    node.node.run(["kill", "-9", &pid]).unwrap();
    cluster.headscale.kill().unwrap();
    let node = &cluster.nodes[0];
    eventually(JOIN_TIMEOUT, "another tailscaled", || {
        let other = node.tailscaled_pid().ok()?.to_string();
        (other != pid).then_some(())
    })
    .unwrap();
    cluster.headscale.restart().unwrap();
}

/// The same with a host tailscaled, which only an administrator logs in.
fn cause_faults_with_host_tailscaled(cluster: &mut MeshCluster, hosts: &mut Tailscaled) {
    let await_failing = |cluster: &MeshCluster, condition: &str| {
        let node = &cluster.nodes[0];
        node.await_condition(condition, false, JOIN_TIMEOUT)
            .unwrap();
    };
    cluster.headscale.kill().unwrap();
    await_failing(cluster, "HeadscaleReachable");
    hosts.kill().unwrap();
    await_failing(cluster, "MeshJoined");
    cluster.headscale.restart().unwrap();
    hosts.restart().unwrap();
}

fn an_unknown_key_is_refused(node: &MeshNode, key: &str) {
    assert!(
        key.starts_with(KEY_PREFIXES[0]),
        "the prefix of keys has changed"
    );
    node.node.write(API_KEY_FILE, UNKNOWN_KEY).unwrap();
    node.reload();
    eventually(JOIN_TIMEOUT, "the key is refused", || {
        let (_, message) = node.condition("HeadscaleReachable").ok()?;
        message.contains("API key is wrong").then_some(())
    })
    .unwrap();
    node.node.write(API_KEY_FILE, key).unwrap();
    node.reload();
    node.await_condition("HeadscaleReachable", true, JOIN_TIMEOUT)
        .unwrap();
}

/// The environment and logs of a tailscaled.
fn tailscaled_output(node: &MeshNode, hosts: Option<&Tailscaled>) -> Vec<(String, String)> {
    if let Some(hosts) = hosts {
        return vec![("the host's tailscaled's log".to_owned(), hosts.log())];
    }
    let pid = node.tailscaled_pid().unwrap();
    let logs = TAILSCALED_LOGS.map(|log| (log.to_owned(), read(&node.file(log))));
    let all = [("tailscaled's environment".to_owned(), environment(pid))];
    all.into_iter().chain(logs).collect()
}

fn answers(node: &MeshNode) -> Vec<(String, String)> {
    let mut outputs = Vec::new();
    for path in ["/healthz", "/ready", "/metrics"] {
        outputs.push((path.to_owned(), node.get(path).unwrap().body));
    }
    let client = HttpClient::new(node.file("/run/headcni/daemon.sock")).timeout(JOIN_TIMEOUT);
    for resource in Resource::ALL {
        let response = client.get(&resource.path()).unwrap();
        let body = String::from_utf8(response.body).unwrap();
        outputs.push((resource.to_string(), body));
    }
    outputs.push(command(node, &["config", "show"]));
    outputs.push(command(node, &["config", "check"]));
    outputs
}

fn command(node: &MeshNode, args: &[&str]) -> (String, String) {
    let output = node.command(args).unwrap();
    assert!(output.status.success(), "{output:?}");
    (args.join(" "), output.stdout + &output.stderr)
}

fn environment(pid: u32) -> String {
    read(Path::new(&format!("/proc/{pid}/environ")))
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// All files that other users than root can read.
fn readable_by_others(node: &MeshNode) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut todo: Vec<PathBuf> = DIRECTORIES.iter().map(|dir| node.file(dir)).collect();
    while let Some(path) = todo.pop() {
        let Ok(meta) = path.symlink_metadata() else {
            continue;
        };
        if meta.is_dir() {
            let entries = fs::read_dir(&path).unwrap();
            todo.extend(entries.filter_map(|entry| Some(entry.ok()?.path())));
        } else if meta.is_file() && (meta.permissions().mode() & 0o077 != 0 || meta.uid() != 0) {
            found.push((path.display().to_string(), read(&path)));
        }
    }
    assert!(!found.is_empty(), "the conflist is readable");
    found
}

/// Collects the arguments of all processes of a node.
struct ArgumentWatch {
    is_over: Arc<AtomicBool>,
    watching: JoinHandle<Vec<(String, String)>>,
}

impl ArgumentWatch {
    fn start(node: &MeshNode) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let home = fs::read_link(format!("/proc/{}/ns/mnt", node.node.holder_pid())).unwrap();
        let watching = thread::spawn(move || {
            let mut seen: Vec<(String, String)> = Vec::new();
            while !over.load(Ordering::Relaxed) {
                for arguments in running(&home) {
                    if !seen.iter().any(|(_, known)| *known == arguments) {
                        seen.push(("arguments".to_owned(), arguments));
                    }
                }
                thread::sleep(Duration::from_millis(50));
            }
            seen
        });
        Self { is_over, watching }
    }

    fn end(self) -> Vec<(String, String)> {
        self.is_over.store(true, Ordering::Relaxed);
        self.watching.join().unwrap()
    }
}

fn running(home: &Path) -> Vec<String> {
    let all = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let ours = all.filter(|it| fs::read_link(it.path().join("ns/mnt")).is_ok_and(|it| it == *home));
    ours.map(|it| read(&it.path().join("cmdline"))).collect()
}
