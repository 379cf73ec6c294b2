//! A reconcile in a child process on the node, with the node's mounts, to be killed.

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

use crate::fixture::{BOTH, CniConfNode, desired_below};

/// System calls that change files, names, modes or directories, or flush them.
const CHANGING: &str = "chmod,fchmod,fchmodat,fsync,mkdir,mkdirat,rename,renameat,renameat2,unlink,\
                        unlinkat,write";
/// The root of the node's files. Without it, the reconcile would change this machine.
const ROOT: &str = "HEADCNI_TEST_ROOT";
/// strace counts per thread, and the test runner's thread writes first. So many writes of the reconcile
/// are skipped, lest the runner be killed.
const WRITES_AHEAD: usize = 10;

/// Differs from the configuration that tests start with.
pub(crate) fn keys() -> Value {
    json!({ "network": { "mtu": 1400 } })
}

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

/// Waits for a change.
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

/// Before the nth call of a system call.
#[derive(Debug)]
pub(crate) struct Moment {
    pub(crate) name: String,
    nth: usize,
}

impl CniConfNode {
    /// Whatever its result.
    pub(crate) fn pass_inside(&self) -> Output {
        self.inside("one_pass", &[])
    }

    /// With injected faults.
    pub(crate) fn watch_inside(&self, injection: &str) -> Output {
        let strace = ["strace", "-f", "-qq", "-o", "/run/trace", "-e", injection];
        self.inside("one_watch", &strace)
    }

    /// Runs a reconcile that must succeed; returns its system calls.
    pub(crate) fn moments(&self) -> Vec<Moment> {
        let trace = format!("trace={CHANGING}");
        let output = self.inside(
            "one_pass",
            &["strace", "-f", "-qq", "-o", "/run/trace", "-e", &trace],
        );
        assert!(output.status.success(), "{output:?}");
        let trace = self.node.read("/run/trace").unwrap();
        // Each line begins with the thread ID.
        let calls = trace.lines().filter_map(|line| {
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

    /// Kills a reconcile at a system call.
    pub(crate) fn kill_at(&self, moment: &Moment) {
        let inject = format!("inject={}:signal=KILL:when={}", moment.name, moment.nth);
        let output = self.inside(
            "one_pass",
            &["strace", "-f", "-qq", "-o", "/dev/null", "-e", &inject],
        );
        assert_eq!(output.status.signal(), Some(9), "{output:?}");
    }

    fn inside(&self, what: &str, under: &[&str]) -> Output {
        let (root, what) = (format!("{ROOT}=/"), format!("child_process::{what}"));
        let program = env::current_exe().unwrap().display().to_string();
        let pass = [&program, "--exact", &what, "--ignored", "--nocapture"];
        let line = ["env", &root]
            .into_iter()
            .chain(under.iter().copied())
            .chain(pass);
        self.node.attempt(line).unwrap()
    }
}
