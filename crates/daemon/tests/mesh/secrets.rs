//! Keys are for those whom they let in: over a whole life of a node they are in no log, no answer, no
//! argument of a process, and no file that others can read.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use api::http::HttpClient;
use api::messages::Resource;
use lab::{
    Cluster, JOINED, Join, Member, Netns, Signal, Site, TAG, TAILSCALED_SOCKET, Tailscaled,
    eventually,
};
use rstest::rstest;

use crate::scene::Scene;

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

/// Whose tailscaled makes the node a member.
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
    let scene = Scene::new(&[Site::Open]);
    let mut cluster = Cluster::new(&scene.grounds).unwrap();
    let watch = Watch::start(&cluster.members[0]);
    let mut hosts = (whose == Whose::Hosts).then(|| join(&cluster));
    let keys = Keys {
        api: read(&cluster.members[0].file(API_KEY_FILE)),
        // It is not needed, and read all the same.
        auth: cluster.headscale.preauth_key(TAG).unwrap(),
    };
    furnish(&cluster, whose, by, &keys);
    let member = &mut cluster.members[0];
    match by {
        By::Files => member.launch().unwrap(),
        By::Variables => member
            .launch_with(&[
                ("HEADCNID_HEADSCALE_API_KEY", &keys.api),
                ("HEADCNID_HEADSCALE_PRE_AUTH_KEY", &keys.auth),
            ])
            .unwrap(),
    }
    member.await_ready(JOINED).unwrap();

    let mut said: Vec<(String, String)> = Vec::new();
    let pod = member.pod("p").unwrap();
    match &mut hosts {
        None => suffer(&mut cluster),
        Some(hosts) => suffer_with_the_host(&mut cluster, hosts),
    }
    if by == By::Files {
        a_key_is_refused(&cluster.members[0], &keys.api);
    }
    let member = &mut cluster.members[0];
    member.await_ready(JOINED).unwrap();
    said.extend(answers(member));
    member.detach(&pod).unwrap();
    said.extend(readable_by_others(member));
    said.push((
        "the plugin's log".to_owned(),
        read(&member.file(PLUGIN_LOG)),
    ));
    said.extend(said_by_tailscaled(member, hosts.as_ref()));
    let daemon = environment(member.daemon_pid().unwrap());
    let is_found = [&keys.api, &keys.auth].map(|key| daemon.contains(key));
    assert_eq!(is_found, [by == By::Variables; 2], "where the keys are");
    member.stop_daemon().unwrap();
    let log = member.log();
    assert!(log.contains("DEBUG"), "the log has no details");
    said.push(("the log".to_owned(), log));
    said.push(command(member, &["uninstall"]));
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

/// A host's own tailscaled that is a member already.
fn join<'a>(cluster: &Cluster<'a>) -> Tailscaled<'a> {
    let headscale = &cluster.headscale;
    let hosts = Tailscaled::start(cluster.members[0].node, headscale.ca_file()).unwrap();
    let join = Join {
        url: &headscale.url(),
        key: &headscale.preauth_key(TAG).unwrap(),
        advertise: &[],
    };
    hosts.join(&join).unwrap();
    hosts
}

/// Configures the daemon: everybody says as much as they can.
fn furnish(cluster: &Cluster<'_>, whose: Whose, by: By, keys: &Keys) {
    let member = &cluster.members[0];
    let config = member.config(&cluster.headscale.url());
    let line = format!("  apiKeyFile: {API_KEY_FILE}\n");
    assert!(config.contains(&line), "{config}");
    let config = match by {
        By::Files => {
            member.node.write(AUTH_KEY_FILE, &keys.auth).unwrap();
            member.sh(&format!("chmod 0600 {AUTH_KEY_FILE}")).unwrap();
            config.replace(&line, &format!("{line}  preAuthKeyFile: {AUTH_KEY_FILE}\n"))
        }
        By::Variables => {
            member.sh(&format!("rm {API_KEY_FILE}")).unwrap();
            config.replace(&line, "")
        }
    };
    let tailscaled = match whose {
        Whose::Ours => String::new(),
        Whose::OursApart => "  namespace: own\n".to_owned(),
        Whose::Hosts => format!("  mode: host\n  socket: {TAILSCALED_SOCKET}\n"),
    };
    let logs = format!("cni: {{logFile: {PLUGIN_LOG}}}\nlogging: {{level: debug}}\n");
    member
        .configure(&format!("{config}{tailscaled}{logs}"))
        .unwrap();
    if whose != Whose::Hosts {
        // So much that what comes is more than is kept, and is put aside at the next start.
        let much = "much\n".repeat(LARGE_LOG_BYTES / 5);
        member.node.write(TAILSCALED_LOGS[0], much).unwrap();
    }
}

/// What goes wrong in a life, and makes everybody talk.
fn suffer(cluster: &mut Cluster<'_>) {
    cluster.headscale.expire("node-1").unwrap();
    let member = &cluster.members[0];
    eventually(JOINED, "it has joined again", || {
        let logins = member.log().matches("joined the mesh").count();
        (logins > 1).then_some(())
    })
    .unwrap();
    let pid = member.tailscaled_pid().unwrap().to_string();
    member.node.run(["kill", "-9", &pid]).unwrap();
    cluster.headscale.kill().unwrap();
    let member = &cluster.members[0];
    eventually(JOINED, "another tailscaled", || {
        let other = member.tailscaled_pid().ok()?.to_string();
        (other != pid).then_some(())
    })
    .unwrap();
    cluster.headscale.resume().unwrap();
}

/// The same where only a person logs in.
fn suffer_with_the_host(cluster: &mut Cluster<'_>, hosts: &mut Tailscaled<'_>) {
    let await_failing = |cluster: &Cluster<'_>, condition: &str| {
        let member = &cluster.members[0];
        member.await_condition(condition, false, JOINED).unwrap();
    };
    cluster.headscale.kill().unwrap();
    await_failing(cluster, "HeadscaleReachable");
    hosts.kill().unwrap();
    await_failing(cluster, "MeshJoined");
    cluster.headscale.resume().unwrap();
    hosts.resume().unwrap();
}

/// A key that nobody knows any more.
fn a_key_is_refused(member: &Member<'_>, key: &str) {
    assert!(key.starts_with(BEGINNINGS[0]), "keys begin otherwise");
    member.node.write(API_KEY_FILE, STRANGE).unwrap();
    member.signal(Signal::HUP);
    eventually(JOINED, "the key is refused", || {
        let (_, said) = member.condition("HeadscaleReachable").ok()?;
        said.contains("API key is wrong").then_some(())
    })
    .unwrap();
    member.node.write(API_KEY_FILE, key).unwrap();
    member.signal(Signal::HUP);
    member
        .await_condition("HeadscaleReachable", true, JOINED)
        .unwrap();
}

/// What there is of a tailscaled: its environment, and all that it said.
fn said_by_tailscaled(
    member: &Member<'_>,
    hosts: Option<&Tailscaled<'_>>,
) -> Vec<(String, String)> {
    if let Some(hosts) = hosts {
        return vec![("the host's tailscaled's log".to_owned(), hosts.log())];
    }
    let pid = member.tailscaled_pid().unwrap();
    let logs = TAILSCALED_LOGS.map(|log| (log.to_owned(), read(&member.file(log))));
    let all = [("tailscaled's environment".to_owned(), environment(pid))];
    all.into_iter().chain(logs).collect()
}

fn answers(member: &Member<'_>) -> Vec<(String, String)> {
    let mut said = Vec::new();
    for path in ["/healthz", "/ready", "/metrics"] {
        said.push((path.to_owned(), member.get(path).unwrap().body));
    }
    let client = HttpClient::new(member.file("/run/headcni/daemon.sock")).timeout(JOINED);
    for resource in Resource::ALL {
        let response = client.get(&resource.path()).unwrap();
        let body = String::from_utf8(response.body).unwrap();
        said.push((resource.to_string(), body));
    }
    said.push(command(member, &["config", "show"]));
    said.push(command(member, &["config", "check"]));
    said
}

fn command(member: &Member<'_>, words: &[&str]) -> (String, String) {
    let output = member.command(words).unwrap();
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
fn readable_by_others(member: &Member<'_>) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut todo: Vec<PathBuf> = DIRECTORIES.iter().map(|dir| member.file(dir)).collect();
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
    fn start(member: &Member<'_>) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let home = fs::read_link(format!("/proc/{}/ns/mnt", member.node.holder_pid())).unwrap();
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
