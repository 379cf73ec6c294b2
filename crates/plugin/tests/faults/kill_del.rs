//! kill -9 at system calls of a DEL: a second DEL finishes the job.

use lab::{Call, Syscalls};

use crate::kill_points::{Traces, kill_at, moments};
use crate::networks::{call, chain, succeeded, used_node};

#[test]
fn a_second_del_finishes_what_a_killed_one_began() {
    const STEP: usize = 3;
    let plugin = used_node();
    let pod = plugin.pod("p");
    let on_p = |verb: &str| -> Call { call(verb, &chain(&[])).pod(&pod) };
    let (before, traces) = (plugin.snapshot(), Traces::of(&plugin));
    succeeded(plugin.run(&on_p("ADD")));
    let moments = moments(&plugin, &on_p("DEL"), Syscalls::All);
    assert!(moments.len() > 80, "too few to be true: {moments:?}");
    let (mut killed, mut unfinished) = (0, 0);
    for moment in moments.iter().step_by(STEP) {
        succeeded(plugin.run(&on_p("ADD")));
        killed += usize::from(kill_at(&plugin, &on_p("DEL"), moment));
        unfinished += usize::from(plugin.record("p").is_some());
        let outcome = plugin.run(&on_p("DEL"));
        assert!(
            outcome.status.success(),
            "killed before {moment:?}: {outcome:?}"
        );
        assert_eq!(Traces::of(&plugin), traces, "killed before {moment:?}");
    }
    let all = moments.len().div_ceil(STEP);
    assert!(killed > all * 3 / 4, "only {killed} of {all} were killed");
    assert!(
        unfinished > all / 2,
        "only {unfinished} of {all} were killed before the end"
    );
    plugin.node.assert_unchanged(&before);
}
