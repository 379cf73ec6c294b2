//! System calls that fail in the middle of an ADD: it says so and undoes everything by itself, or
//! it succeeds all the same.

use lab::{Moment, Netns, Syscalls};
use rstest::rstest;

use crate::kill_sweep::with_all;
use crate::networks::{call, dual_stack, headcni, used_node};
use crate::node_state::{Traces, snapshot};

/// What the kernel is told, and what it answers.
const MESSAGES: &[&str] = &[
    "sendto", "sendmsg", "recvfrom", "recvmsg", "recvmmsg", "socket",
];
const FILES: &[&str] = &[
    "open",
    "openat",
    "read",
    "write",
    "pread64",
    "pwrite64",
    "linkat",
    "rename",
    "flock",
    "stat",
    "fstat",
    "lstat",
    "newfstatat",
    "utimensat",
];

/// Who takes away what a failed ADD has made.
#[derive(PartialEq)]
enum Undoing {
    ByItself,
    ByDel,
}

#[rstest]
#[case::messages(MESSAGES, "ENOBUFS", Undoing::ByItself)]
// A file that can't be locked or read can't be forgotten either.
// Not EIO, which the lease store retries by itself.
#[case::files(FILES, "EROFS", Undoing::ByDel)]
fn an_add_in_which_a_system_call_fails_leaves_nothing(
    #[case] names: &[&str],
    #[case] errno: &str,
    #[case] undoing: Undoing,
) {
    let conf = with_all(dual_stack());
    let plugin = used_node(&conf);
    let pod = plugin.pod("p");
    let (before, traces) = (snapshot(&plugin), Traces::of(&plugin));
    let add = call("ADD", &conf).pod(&pod);
    let trace = add
        .trace(&plugin.node, headcni(), Syscalls::Only(names))
        .unwrap();
    trace.outcome.ok().unwrap();
    plugin.succeed("DEL", &conf, &pod);
    let mut noticed = 0;
    for moment in &trace.moments {
        let outcome = plugin.run(&add.clone().inject(moment.fail(errno)));
        let tell = |moment: &Moment| format!("{errno} at {}", moment.line);
        let is_done = outcome.status.success();
        // Where nothing can be said, nothing is.
        let is_told = outcome.err_code().is_some() || moment.line.starts_with("write(1, ");
        assert!(is_done || is_told, "{}: {outcome:?}", tell(moment));
        let is_retried = outcome.stderr.contains("retrying");
        noticed += usize::from(!is_done || is_retried);
        if is_done || undoing == Undoing::ByDel {
            plugin.succeed("DEL", &conf, &pod);
        }
        let difference = traces.difference(&Traces::of(&plugin));
        assert!(
            difference.is_empty(),
            "{}: {outcome:?}\n{difference}",
            tell(moment)
        );
    }
    assert!(
        noticed * 3 > trace.moments.len(),
        "only {noticed} of {}",
        trace.moments.len()
    );
    assert_eq!(pod.links().unwrap(), [""; 0]);
    plugin.node.assert_unchanged(&before);
}
