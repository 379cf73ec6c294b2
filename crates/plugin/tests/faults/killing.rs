//! kill -9 at a chosen system call, and a quick look at what remains.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;

use lab::{Call, Netns};

use crate::scene::{LEASE_DIR, STATE_DIR, Scene, succeeded};

/// A moment in the life of a process: before the `nth` time that it calls `name`.
///
/// strace counts each kind of system call by itself.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    name: String,
    nth: usize,
}

/// Runs a call of headcni, which must succeed, and returns every system call that it made.
///
/// Those of its threads, which only move bytes, do not count.
pub(crate) fn moments(scene: &Scene, call: &Call) -> Vec<Moment> {
    let strace = ["strace", "-qq", "-o", "/run/faults-trace"];
    succeeded(scene.run(&call.clone().under(strace)));
    let trace = scene.node.read("/run/faults-trace").unwrap();
    scene.node.run(["rm", "/run/faults-trace"]).unwrap();
    let mut counts = BTreeMap::new();
    let moment = |line: &str| {
        let (name, _) = line.split_once('(')?;
        let nth = counts.entry(name.to_owned()).or_default();
        *nth += 1;
        Some(Moment {
            name: name.to_owned(),
            nth: *nth,
        })
    };
    trace.lines().filter_map(moment).collect()
}

/// Runs a call of headcni and kills it at a moment. Returns whether that moment came: how often
/// headcni looks whether a plugin has ended is not the same each time.
///
/// Only headcni is killed. The plugins that it executed run on, and nobody waits for them here:
/// none of them holds the output that we read.
pub(crate) fn kill_at(scene: &Scene, call: &Call, moment: &Moment) -> bool {
    let Moment { name, nth } = moment;
    let inject = format!("inject={name}:signal=KILL:when={nth}");
    let script = format!("exec strace -qq -o /dev/null -e {inject} \"$0\" >/dev/null 2>&1");
    let outcome = scene.run(&call.clone().under(["sh", "-c", &script]));
    let killed = outcome.status.signal() == Some(9);
    assert!(
        killed || outcome.status.success(),
        "{moment:?}: {outcome:?}"
    );
    killed
}

/// What a container leaves, as far as it can be seen without much ado.
#[derive(Debug, PartialEq)]
pub(crate) struct Traces {
    links: Vec<String>,
    leases: Vec<String>,
    records: Vec<String>,
    rules: Vec<String>,
}

impl Traces {
    pub(crate) fn of(scene: &Scene) -> Self {
        let holder = scene.node.holder_pid();
        let devices = fs::read_to_string(format!("/proc/{holder}/net/dev")).unwrap();
        let names = devices.lines().filter_map(|line| line.split_once(':'));
        let rules = scene.node.run(["iptables-save"]).unwrap().stdout;
        let rules = rules.lines().filter(|line| line.starts_with("-A"));
        let mut leases = scene.files(LEASE_DIR);
        leases.retain(|name| name != "last_reserved_ip.0");
        let mut traces = Self {
            links: names.map(|(name, _)| name.trim().to_owned()).collect(),
            leases,
            records: scene.files(STATE_DIR),
            rules: rules.map(str::to_owned).collect(),
        };
        traces.links.sort();
        traces.rules.sort();
        traces
    }
}
