//! Keys are for those whom they let in: over a whole life of a node they are in no log, no answer, no
//! argument of a process, and no file that others can read.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lab::scenario::{JOIN_TIMEOUT, MeshCluster, MeshNode, NODE_TAG};
use lab::{Join, Netns, TAILSCALED_SOCKET, Tailscaled, eventually};
use rstest::rstest;


/// What every key of Headscale's and every private key of Tailscale's begins with.
const BEGINNINGS: [&str; 3] = ["hskey-api-", "hskey-auth-", "privkey:"];
/// A key that no server has given to anybody.
const STRANGE: &str =
    "hskey-api-strangestran-strangestrangestrangestrangestrangestrangestrangestrange";
/// All that we write to.
const DIRECTORIES: [&str; 4] = [
    "/run/headcni",
    "/var/lib/headcni",
    "/etc/cni",
    "/var/lib/cni",
];
const API_KEY_FILE: &str = "/etc/headcni/api-key";
const AUTH_KEY_FILE: &str = "/etc/headcni/auth-key";
const PLUGIN_LOG: &str = "/var/log/headcni-plugin.log";
/// Ours, and what is put aside of it when it grows above so much.
const TAILSCALED_LOGS: [&str; 2] = [
    "/var/lib/headcni/tailscale/tailscaled.log",
    "/var/lib/headcni/tailscale/tailscaled.log.1",
];
const LARGE_LOG_BYTES: usize = 8 << 20;

/// Whose tailscaled makes the node a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    Ours,
    OursApart,
    Hosts,
}

/// How the daemon gets its keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Files,
    Variables,
}

/// The keys of a node.
struct Keys {
    api: String,
    auth: String,
}

#[rstest]
#[case::of_ours_by_files(Whose::Ours, By::Files)]
#[case::of_ours_apart_by_variables(Whose::OursApart, By::Variables)]
#[case::of_the_hosts_by_variables(Whose::Hosts, By::Variables)]
fn keys_are_seen_nowhere_in_a_nodes_whole_life(#[case] whose: Whose, #[case] by: By) {
    let mut cluster = MeshCluster::prepare(1);
    let watch = Watch::start(&cluster.nodes[0]);
    let mut hosts = (whose == Whose::Hosts).then(|| join(&cluster));
    let keys = Keys {
        api: read(&cluster.nodes[0].file(API_KEY_FILE)),
        // It is not needed, and read all the same.
        auth: cluster.headscale.preauth_key(NODE_TAG).unwrap(),
    };
    furnish(&cluster, whose, by, &keys);
    let node = &mut cluster.nodes[0];
    match by {
        By::Files => node.start_daemon().unwrap(),
        By::Variables => node
            .start_daemon_with_env(&[
                ("HEADCNID_HEADSCALE_API_KEY", &keys.api),
                ("HEADCNID_HEADSCALE_PRE_AUTH_KEY", &keys.auth),
            ])
            .unwrap(),
    }
    node.await_ready(JOIN_TIMEOUT).unwrap();

    let mut said: Vec<(String, String)> = Vec::new();
    let pod = node.pod("p").unwrap();
    match &mut hosts {
        None => suffer(&mut cluster),
        Some(hosts) => suffer_with_the_host(&mut cluster, hosts),
    }
    if by == By::Files {
        a_key_is_refused(&cluster.nodes[0], &keys.api);
    }
    let node = &mut cluster.nodes[0];
    node.await_ready(JOIN_TIMEOUT).unwrap();
    said.extend(answers(node));
    node.detach(&pod).unwrap();
    said.extend(readable_by_others(node));
    said.push((
        "the plugin's log".to_owned(),
        read(&node.file(PLUGIN_LOG)),
    ));
    said.extend(said_by_tailscaled(node, hosts.as_ref()));
    let daemon = environment(node.daemon_pid().unwrap());
    let is_found = [&keys.api, &keys.auth].map(|key| daemon.contains(key));
    assert_eq!(is_found, [by == By::Variables; 2], "where the keys are");
    node.stop_daemon().unwrap();
    let log = node.log();
    assert!(log.contains("DEBUG"), "the log has no details");
    said.push(("the log".to_owned(), log));
    said.push(command(node, &["uninstall"]));
    said.extend(watch.end());
    check(&said, &keys);
}

fn check(said: &[(String, String)], keys: &Keys) {
    let secrets = BEGINNINGS.iter().copied();
    let secrets = secrets.chain([keys.api.as_str(), &keys.auth, STRANGE]);
    for (place, text) in said {
        // A file may be empty, and a process that is just ending has no arguments.
        let may_be_empty = place.starts_with("/proc/") || place == "arguments";
        assert!(may_be_empty || !text.is_empty(), "{place} says nothing");
        for secret in secrets.clone() {
            // The text is not shown: a log of tests is for everybody.
            let kind = secret.get(..10).unwrap_or(secret);
            assert!(!text.contains(secret), "{place} has a key ({kind})");
        }
    }
    let arguments = said.iter().filter(|(place, _)| place == "arguments");
    assert!(arguments.count() > 1, "nothing was watched");
}

/// A host's own tailscaled that is a node already.
fn join<'a>(cluster: &MeshCluster) -> Tailscaled {
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

/// Configures the daemon: everybody says as much as they can.
fn furnish(cluster: &MeshCluster, whose: Whose, by: By, keys: &Keys) {
    let node = &cluster.nodes[0];
    let config = node.config(&cluster.headscale.url());
    let line = format!("  apiKeyFile: {API_KEY_FILE}\n");
    assert!(config.contains(&line), "{config}");
    let config = match by {
        By::Files => {
            node.node.write(AUTH_KEY_FILE, &keys.auth).unwrap();
            node.sh(&format!("chmod 0600 {AUTH_KEY_FILE}")).unwrap();
            config.replace(&line, &format!("{line}  preAuthKeyFile: {AUTH_KEY_FILE}\n"))
        }
        By::Variables => {
            node.sh(&format!("rm {API_KEY_FILE}")).unwrap();
            config.replace(&line, "")
        }
    };
    let tailscaled = match whose {
        Whose::Ours => String::new(),
        Whose::OursApart => "  namespace: own\n".to_owned(),
        Whose::Hosts => format!("  mode: host\n  socket: {TAILSCALED_SOCKET}\n"),
    };
    let logs = format!("cni: {{logFile: {PLUGIN_LOG}}}\nlogging: {{level: debug}}\n");
    node
        .configure(&format!("{config}{tailscaled}{logs}"))
        .unwrap();
    if whose != Whose::Hosts {
        // So much that what comes is more than is kept, and is put aside at the next start.
        let much = "much\n".repeat(LARGE_LOG_BYTES / 5);
        node.node.write(TAILSCALED_LOGS[0], much).unwrap();
    }
}

/// What goes wrong in a life, and makes everybody talk.
fn suffer(cluster: &mut MeshCluster) {
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

/// The same where only a person logs in.
fn suffer_with_the_host(cluster: &mut MeshCluster, hosts: &mut Tailscaled) {
    let await_failing = |cluster: &MeshCluster, condition: &str| {
        let node = &cluster.nodes[0];
        node.await_condition(condition, false, JOIN_TIMEOUT).unwrap();
    };
    cluster.headscale.kill().unwrap();
    await_failing(cluster, "HeadscaleReachable");
    hosts.kill().unwrap();
    await_failing(cluster, "MeshJoined");
    cluster.headscale.restart().unwrap();
    hosts.restart().unwrap();
}

/// A key that nobody knows any more.
fn a_key_is_refused(node: &MeshNode, key: &str) {
    assert!(key.starts_with(BEGINNINGS[0]), "keys begin otherwise");
    node.node.write(API_KEY_FILE, STRANGE).unwrap();
    node.reload();
    eventually(JOIN_TIMEOUT, "the key is refused", || {
        let (_, said) = node.condition("HeadscaleReachable").ok()?;
        said.contains("API key is wrong").then_some(())
    })
    .unwrap();
    node.node.write(API_KEY_FILE, key).unwrap();
    node.reload();
    node
        .await_condition("HeadscaleReachable", true, JOIN_TIMEOUT)
        .unwrap();
}

/// What there is of a tailscaled: its environment, and all that it said.
fn said_by_tailscaled(
    node: &MeshNode,
    hosts: Option<&Tailscaled>,
) -> Vec<(String, String)> {
    if let Some(hosts) = hosts {
        return vec![("the host's tailscaled's log".to_owned(), hosts.log())];
    }
    let pid = node.tailscaled_pid().unwrap();
    let logs = TAILSCALED_LOGS.map(|log| (log.to_owned(), read(&node.file(log))));
    let all = [("tailscaled's environment".to_owned(), environment(pid))];
    all.into_iter().chain(logs).collect()
}

fn answers(node: &MeshNode) -> Vec<(String, String)> {
    let mut said = Vec::new();
    for path in ["/healthz", "/ready", "/metrics"] {
        said.push((path.to_owned(), node.get(path).unwrap().body));
    }
    for ask in api::messages::Ask::ALL {
        let mut stream = UnixStream::connect(node.file("/run/headcni/daemon.sock")).unwrap();
        stream.set_read_timeout(Some(JOIN_TIMEOUT)).unwrap();
        writeln!(stream, "{{\"ask\":\"{ask}\"}}").unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        said.push((ask.to_string(), answer));
    }
    said.push(command(node, &["config", "show"]));
    said.push(command(node, &["config", "check"]));
    said
}

fn command(node: &MeshNode, words: &[&str]) -> (String, String) {
    let output = node.command(words).unwrap();
    assert!(output.status.success(), "{output:?}");
    (words.join(" "), output.stdout + &output.stderr)
}

fn environment(pid: u32) -> String {
    read(Path::new(&format!("/proc/{pid}/environ")))
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// All files that somebody else than root can read, whatever directories they are in.
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
    assert!(!found.is_empty(), "a conflist is for everybody");
    found
}

/// Looks at the arguments of everything that runs on a node, again and again.
struct Watch {
    is_over: Arc<AtomicBool>,
    watching: JoinHandle<Vec<(String, String)>>,
}

impl Watch {
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
