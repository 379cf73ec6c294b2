//! Moments in the life of a call, and what can happen in them: kill -9, or an error.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;

use lab::{Call, Netns, Outcome};

use crate::scene::{Plugin, Scene};

const TRACE: &str = "/run/trace";

/// Before the `nth` time that the process calls `name`: strace counts each kind by itself.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    pub(crate) name: String,
    nth: usize,
    /// As strace tells it.
    pub(crate) line: String,
}

/// Runs a call of our plugin, whatever comes of it, and returns every system call that it made.
pub(crate) fn moments(scene: &Scene, call: &Call) -> Vec<Moment> {
    moments_with(scene, call, None)
}

/// The same, while something else happens.
pub(crate) fn moments_with(scene: &Scene, call: &Call, injection: Option<&str>) -> Vec<Moment> {
    let mut strace = vec!["strace", "-qq", "-s", "200", "-o", TRACE];
    if let Some(injection) = injection {
        strace.extend(["-e", "trace=all", "-e", injection]);
    }
    scene.run(Plugin::Ours, &call.clone().under(strace));
    let trace = scene.node.read(TRACE).unwrap();
    scene.node.run(["rm", TRACE]).unwrap();
    let mut counts = BTreeMap::new();
    let moment = |line: &str| {
        let (name, _) = line.split_once('(')?;
        let nth = counts.entry(name.to_owned()).or_default();
        *nth += 1;
        Some(Moment {
            name: name.to_owned(),
            nth: *nth,
            line: line.to_owned(),
        })
    };
    let moments: Vec<_> = trace.lines().filter_map(moment).collect();
    assert!(moments.len() > 30, "too few to be true: {moments:?}");
    moments
}

/// The moments from the first touch of the store on.
pub(crate) fn in_store(scene: &Scene, moments: Vec<Moment>) -> Vec<Moment> {
    let dir = scene.data_dir().to_str().unwrap();
    let is_before = |moment: &Moment| !moment.line.contains(dir) || moment.name == "read";
    let mut moments = moments;
    let first = moments
        .iter()
        .position(|moment| !is_before(moment))
        .unwrap();
    moments.split_off(first)
}

/// The first moment, and of the others those before which something has just been changed: in
/// between, a process that dies leaves the same files.
pub(crate) fn after_changes(moments: Vec<Moment>) -> Vec<Moment> {
    let is_change = |moment: &Moment| {
        // Each by its names on all architectures.
        let names = [
            "write",
            "pwrite64",
            "linkat",
            "rename",
            "renameat",
            "unlink",
            "unlinkat",
            "utimensat",
            "mkdir",
            "mkdirat",
        ];
        names.contains(&moment.name.as_str()) || moment.line.contains("O_CREAT")
    };
    let changes: Vec<bool> = moments.iter().map(is_change).collect();
    let mut number = 0;
    let mut moments = moments;
    moments.retain(|_| {
        number += 1;
        number == 1 || changes[number - 2]
    });
    moments
}

/// Runs a call of our plugin and kills it at a moment.
pub(crate) fn kill_at(scene: &Scene, call: &Call, moment: &Moment) {
    let outcome = scene.run(Plugin::Ours, &injected(call, moment, "signal=KILL"));
    let is_killed = outcome.status.signal() == Some(9);
    assert!(
        is_killed || outcome.status.success(),
        "{moment:?}: {outcome:?}"
    );
}

/// Runs a call of our plugin in which the system call of this moment fails.
pub(crate) fn fail_at(scene: &Scene, call: &Call, moment: &Moment, errno: &str) -> Outcome {
    let what = format!("error={errno}");
    scene.run(Plugin::Ours, &injected(call, moment, &what))
}

fn injected(call: &Call, moment: &Moment, what: &str) -> Call {
    under(call, &[moment.inject(what)])
}

impl Moment {
    /// What strace is to be told so that this happens at the moment.
    pub(crate) fn inject(&self, what: &str) -> String {
        format!("inject={}:{what}:when={}", self.name, self.nth)
    }
}

/// The call under strace, with all of this to happen.
pub(crate) fn under(call: &Call, injections: &[String]) -> Call {
    let mut line = vec!["strace", "-qq", "-o", "/dev/null"];
    for injection in injections {
        line.extend(["-e", injection]);
    }
    call.clone().under(line)
}
