//! Moments in the life of a call, and what can happen in them: kill -9, or an error.

use lab::{Call, Outcome, Syscalls};

pub(crate) use lab::Moment;

use crate::store_node::{Plugin, StoreNode};

/// Runs a call of our plugin, whatever comes of it, and returns every system call that it made.
pub(crate) fn moments(store: &StoreNode, call: &Call) -> Vec<Moment> {
    let trace = call.trace(&store.node, Plugin::Ours.path(), Syscalls::All);
    let moments = trace.unwrap().moments;
    assert!(moments.len() > 30, "too few to be true: {moments:?}");
    moments
}

/// The moments from the first touch of the store on.
pub(crate) fn in_store(store: &StoreNode, moments: Vec<Moment>) -> Vec<Moment> {
    let dir = store.data_dir().to_str().unwrap();
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
            "renameat2",
            "ftruncate",
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

/// Runs a call of our plugin and kills it at a moment, or lets it succeed if that does not come.
pub(crate) fn kill_at(store: &StoreNode, call: &Call, moment: &Moment) {
    let killed = call.kill_at(&store.node, Plugin::Ours.path(), moment);
    killed.unwrap();
}

/// Runs a call of our plugin in which the system call of this moment fails.
pub(crate) fn fail_at(store: &StoreNode, call: &Call, moment: &Moment, errno: &str) -> Outcome {
    store.run(Plugin::Ours, &call.clone().inject(moment.fail(errno)))
}
