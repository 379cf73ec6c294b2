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

use lab::{Cluster, Grounds, JOINED, Member, Netns, Signal, Site, TAG, eventually};

use crate::turn;

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

#[test]
fn keys_are_seen_nowhere_in_a_nodes_whole_life() {
    let _turn = turn::take();
    let grounds = Grounds::new(&[Site::Open]).unwrap();
    let mut cluster = Cluster::new(&grounds).unwrap();
    let member = &mut cluster.members[0];
    // It is not needed, and read all the same.
    let given = cluster.headscale.preauth_key(TAG).unwrap();
    member.node.write("/etc/headcni/auth-key", given).unwrap();
    member.sh("chmod 0600 /etc/headcni/auth-key").unwrap();
    let config = member.config(&cluster.headscale.url()).replace(
        "  apiKeyFile:",
        "  preAuthKeyFile: /etc/headcni/auth-key\n  apiKeyFile:",
    );
    let config = format!("{config}logging: {{level: debug}}\n");
    member.configure(&config).unwrap();

    let watch = Watch::start(member);
    let mut said: Vec<(String, String)> = Vec::new();
    cluster.start().unwrap();
    let pod = cluster.members[0].pod("p").unwrap();
    suffer(&mut cluster);
    let member = &mut cluster.members[0];
    said.extend(answers(member));
    member.detach(&pod).unwrap();
    said.extend(readable_by_others(member));
    said.push(("tailscaled's environment".to_owned(), environment(member)));
    let own_log = member.file("/var/lib/headcni/tailscale/tailscaled.log");
    said.push(("tailscaled's log".to_owned(), read(&own_log)));
    member.stop_daemon().unwrap();
    let log = member.log();
    assert!(log.contains("DEBUG"), "the log has no details");
    said.push(("the log".to_owned(), log));
    said.push(command(member, &["uninstall"]));
    said.extend(watch.end());

    for (place, text) in &said {
        // A file may be empty, and a process that is just ending has no arguments.
        let may_be_empty = place.starts_with("/proc/") || place == "arguments";
        assert!(may_be_empty || !text.is_empty(), "{place} says nothing");
        for beginning in BEGINNINGS {
            // The text is not shown: a log of tests is for everybody.
            assert!(!text.contains(beginning), "{place} has a key ({beginning})");
        }
    }
    let arguments = said.iter().filter(|(place, _)| place == "arguments");
    assert!(arguments.count() > 1, "nothing was watched");
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
    // A key that nobody knows any more.
    let key = read(&cluster.members[0].file("/etc/headcni/api-key"));
    assert!(key.starts_with(BEGINNINGS[0]), "keys begin otherwise");
    let member = &cluster.members[0];
    member.node.write("/etc/headcni/api-key", STRANGE).unwrap();
    member.signal(Signal::HUP);
    eventually(JOINED, "the key is refused", || {
        let (_, said) = member.condition("HeadscaleReachable").ok()?;
        said.contains("API key is wrong").then_some(())
    })
    .unwrap();
    member.node.write("/etc/headcni/api-key", key).unwrap();
    member.signal(Signal::HUP);
    member
        .await_condition("HeadscaleReachable", true, JOINED)
        .unwrap();
    member.await_ready(JOINED).unwrap();
}

fn answers(member: &Member<'_>) -> Vec<(String, String)> {
    let mut said = Vec::new();
    for path in ["/healthz", "/ready", "/metrics"] {
        said.push((path.to_owned(), member.get(path).unwrap().body));
    }
    for ask in api::messages::Ask::ALL {
        let mut stream = UnixStream::connect(member.file("/run/headcni/daemon.sock")).unwrap();
        stream.set_read_timeout(Some(JOINED)).unwrap();
        writeln!(stream, "{{\"ask\":\"{ask}\"}}").unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        said.push((ask.to_string(), answer));
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

fn environment(member: &Member<'_>) -> String {
    let pid = member.tailscaled_pid().unwrap();
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
