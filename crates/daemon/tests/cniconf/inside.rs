//! A pass in a process of its own, on the node: with the node's mounts, and to be killed.

use std::collections::BTreeMap;
use std::env;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lab::{Netns, Output};
use node_cniconf::watch;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::scene::{BOTH, Scene, desired_below};

/// Whatever changes a file, a name, a mode or a directory, or makes it last.
const CHANGING: &str = "chmod,fchmod,fchmodat,fsync,mkdir,mkdirat,rename,renameat,renameat2,unlink,\
                        unlinkat,write";
/// Says where the pass is to be made. Without it, it would be on this machine.
const ROOT: &str = "HEADCNI_TEST_ROOT";
/// strace counts for each thread by itself, and the test runner's own one writes first. So many
/// writes of the pass are for nothing, lest the runner be killed in its place.
const WRITES_AHEAD: usize = 10;

/// Another configuration than the one that tests begin with.
pub(crate) fn keys() -> Value {
    json!({ "network": { "mtu": 1400 } })
}

/// The pass itself.
#[test]
#[ignore = "a part of other tests, which run it on a node"]
fn one_pass() {
    let root = env::var_os(ROOT).unwrap();
    let desired = desired_below(Path::new(&root), &keys(), &BOTH);
    let mut nowhere = File::options().write(true).open("/dev/null").unwrap();
    for _ in 0..WRITES_AHEAD {
        nowhere.write_all(b".").unwrap();
    }
    if let Err(error) = node_cniconf::ensure(&desired) {
        panic!("{}", error.explained());
    }
}

/// Watches until something has changed.
#[test]
#[ignore = "a part of other tests, which run it on a node"]
fn one_watch() {
    let root = env::var_os(ROOT).unwrap();
    let desired = desired_below(Path::new(&root), &keys(), &BOTH);
    let changed = Arc::new(Notify::new());
    let _watch = watch(&desired.dirs, Arc::clone(&changed)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let notified = async { timeout(Duration::from_secs(30), changed.notified()).await };
    runtime.block_on(notified).unwrap();
}

/// Before the nth time that the pass does one system call.
#[derive(Debug)]
pub(crate) struct Moment {
    pub(crate) name: String,
    nth: usize,
}

impl Scene {
    /// Makes a pass on the node, whatever comes of it.
    pub(crate) fn pass_inside(&self) -> Output {
        self.inside("one_pass", &[])
    }

    /// Watches on the node, with something done to its system calls.
    pub(crate) fn watch_inside(&self, injection: &str) -> Output {
        let strace = ["strace", "-f", "-qq", "-o", "/run/trace", "-e", injection];
        self.inside("one_watch", &strace)
    }

    /// Makes a pass, which must succeed, and tells its moments.
    pub(crate) fn moments(&self) -> Vec<Moment> {
        let trace = format!("trace={CHANGING}");
        let output = self.inside(
            "one_pass",
            &["strace", "-f", "-qq", "-o", "/run/trace", "-e", &trace],
        );
        assert!(output.status.success(), "{output:?}");
        let told = self.node.read("/run/trace").unwrap();
        // Each line begins with the thread's number.
        let calls = told.lines().filter_map(|line| {
            let (thread, call) = line.split_once(' ')?;
            let name = call.trim_start().split_once('(')?.0;
            Some((thread, name))
        });
        let calls: Vec<(&str, &str)> = calls.collect();
        let renames = calls.iter().find(|(_, name)| name.starts_with("rename"));
        let pass = renames.unwrap().0;
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let mut moments = Vec::new();
        for (_, name) in calls.iter().filter(|(thread, _)| *thread == pass) {
            let nth = counts.entry(name).or_default();
            *nth += 1;
            moments.push(Moment {
                name: (*name).to_owned(),
                nth: *nth,
            });
        }
        moments.retain(|moment| moment.name != "write" || moment.nth > WRITES_AHEAD);
        moments
    }

    /// Makes a pass and kills it at a moment.
    pub(crate) fn kill_at(&self, moment: &Moment) {
        let inject = format!("inject={}:signal=KILL:when={}", moment.name, moment.nth);
        let output = self.inside(
            "one_pass",
            &["strace", "-f", "-qq", "-o", "/dev/null", "-e", &inject],
        );
        assert_eq!(output.status.signal(), Some(9), "{output:?}");
    }

    fn inside(&self, what: &str, under: &[&str]) -> Output {
        let (root, what) = (format!("{ROOT}=/"), format!("inside::{what}"));
        let program = env::current_exe().unwrap().display().to_string();
        let pass = [&program, "--exact", &what, "--ignored", "--nocapture"];
        let line = ["env", &root]
            .into_iter()
            .chain(under.iter().copied())
            .chain(pass);
        self.node.attempt(line).unwrap()
    }
}
