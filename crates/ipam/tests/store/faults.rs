//! Faults at single system calls of the plugin: kill -9 or an error.

use lab::{Call, Outcome, Syscalls};

pub(crate) use lab::Moment as Syscall;

use crate::store_node::{Plugin, StoreNode};

/// Runs a call and returns all of its system calls.
pub(crate) fn syscalls(store: &StoreNode, call: &Call) -> Vec<Syscall> {
    let trace = call.trace(&store.node, Plugin::Ours.path(), Syscalls::All);
    let syscalls = trace.unwrap().moments;
    assert!(syscalls.len() > 30, "too few system calls: {syscalls:?}");
    syscalls
}

/// The system calls from the first access to the store on.
pub(crate) fn in_store(store: &StoreNode, syscalls: Vec<Syscall>) -> Vec<Syscall> {
    let dir = store.data_dir().to_str().unwrap();
    let is_before = |syscall: &Syscall| !syscall.line.contains(dir) || syscall.name == "read";
    let mut syscalls = syscalls;
    let first = syscalls
        .iter()
        .position(|syscall| !is_before(syscall))
        .unwrap();
    syscalls.split_off(first)
}

/// The first system call, and each one that follows a change: in between, a killed process leaves
/// the same files.
pub(crate) fn after_changes(syscalls: Vec<Syscall>) -> Vec<Syscall> {
    let is_change = |syscall: &Syscall| {
        // With the names of all architectures.
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
        names.contains(&syscall.name.as_str()) || syscall.line.contains("O_CREAT")
    };
    let changes: Vec<bool> = syscalls.iter().map(is_change).collect();
    let mut number = 0;
    let mut syscalls = syscalls;
    syscalls.retain(|_| {
        number += 1;
        number == 1 || changes[number - 2]
    });
    syscalls
}

/// Runs a call and kills it at a system call. If the call does not reach it, it must succeed.
pub(crate) fn kill_at(store: &StoreNode, call: &Call, syscall: &Syscall) {
    let killed = call.kill_at(&store.node, Plugin::Ours.path(), syscall);
    killed.unwrap();
}

/// Runs a call in which one system call fails.
pub(crate) fn fail_at(store: &StoreNode, call: &Call, syscall: &Syscall, errno: &str) -> Outcome {
    store.run(Plugin::Ours, &call.clone().inject(syscall.fail(errno)))
}
