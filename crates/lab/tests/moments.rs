//! A plugin can be killed, or failed, at any of its system calls.

#![expect(
    clippy::unwrap_used,
    reason = "these are tests, and clippy takes only the functions marked so for tests"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt;

use lab::{Call, Moment, Netns, Node, Syscalls};

const PLUGIN: &str = "/opt/lab/linker";

/// A node with a plugin that makes a link and says so.
fn node() -> Node {
    let node = Node::new("moments").unwrap();
    // Each exec keeps the process, so that strace sees what `ip` does.
    let script = "#!/bin/sh\necho begun > /run/begun\n\
                  exec ip link add lab0 type veth peer name lab1\n";
    node.write(PLUGIN, script).unwrap();
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(node.path(PLUGIN), mode).unwrap();
    node
}

fn has_link(node: &Node) -> bool {
    node.link("lab0").unwrap().is_some()
}

fn reset(node: &Node) {
    node.attempt(["ip", "link", "delete", "lab0"]).unwrap();
    node.attempt(["rm", "-f", "/run/begun"]).unwrap();
}

#[test]
fn a_plugin_is_killed_at_each_of_its_kernel_messages() {
    let (node, call) = (node(), Call::new("ADD"));
    let trace = call.trace(&node, PLUGIN, Syscalls::KERNEL_MESSAGES);
    let trace = trace.unwrap();
    trace.outcome.ok().unwrap();
    assert!(has_link(&node), "tracing it does not keep it from its work");
    assert!(!trace.moments.is_empty());
    assert!(
        trace.moments.iter().all(|one| one.name.starts_with("send")),
        "{trace:?}"
    );
    let makes = |line: &str| line.contains("RTM_NEWLINK") && line.contains("NLM_F_CREATE");
    let making = trace.moments.iter().position(|one| makes(&one.line));
    let making = making.unwrap();
    for (number, moment) in trace.moments.iter().enumerate() {
        reset(&node);
        assert!(call.kill_at(&node, PLUGIN, moment).unwrap(), "{moment:?}");
        assert!(node.has("/run/begun"));
        assert_eq!(has_link(&node), number > making, "{moment:?}");
    }
    assert!(!node.has("/run/lab/trace-0"), "traces are taken away");
}

#[test]
fn every_system_call_is_a_moment() {
    let (node, call) = (node(), Call::new("ADD"));
    let trace = call.trace(&node, PLUGIN, Syscalls::All).unwrap();
    // The shell becomes `ip` in the middle, and that is a moment like any other.
    assert!(trace.moments.iter().any(|one| one.name == "execve"));
    let (mut early, mut late) = (0, 0);
    for moment in trace.moments.iter().step_by(7) {
        reset(&node);
        assert!(call.kill_at(&node, PLUGIN, moment).unwrap(), "{moment:?}");
        let count = if has_link(&node) {
            &mut late
        } else {
            &mut early
        };
        *count += 1;
    }
    assert!(early > 5, "{early} before the link was made, {late} after");
}

#[test]
fn a_moment_that_does_not_come_kills_nobody() {
    let (node, call) = (node(), Call::new("ADD"));
    let trace = call.trace(&node, PLUGIN, Syscalls::KERNEL_MESSAGES);
    let last = trace.unwrap().moments.pop().unwrap();
    reset(&node);
    // A plugin that sends nothing at all.
    assert!(!call.kill_at(&node, "/bin/true", &last).unwrap());
    let error = call.kill_at(&node, "/bin/false", &last).unwrap_err();
    assert!(error.to_string().contains("exit status: 1"), "{error}");
}

#[test]
fn a_system_call_fails_as_told() {
    let (node, call) = (node(), Call::new("ADD"));
    let trace = call.trace(&node, PLUGIN, Syscalls::All).unwrap();
    let is_mark = |one: &&Moment| one.name.starts_with("open") && one.line.contains("/run/begun");
    let mark = trace.moments.iter().find(is_mark);
    let mark = mark.unwrap().fail("EROFS");
    reset(&node);
    let failing = call.inject(mark);
    let outcome = failing.run(&node, PLUGIN).unwrap();
    assert!(
        outcome.stderr.contains("Read-only file system"),
        "{outcome:?}"
    );
    // It can be watched, too, and then another moment be killed.
    let trace = failing.trace(&node, PLUGIN, Syscalls::Only(&["write"]));
    let trace = trace.unwrap();
    assert!(trace.outcome.stderr.contains("Read-only file system"));
    let complaint = &trace.moments[0];
    assert!(complaint.line.contains("write(2, "), "{complaint:?}");
    assert!(failing.kill_at(&node, PLUGIN, complaint).unwrap());
}
