//! kill -9 at every system call of an ADD: one DEL, or one GC, leaves nothing behind.

use lab::scenario::PluginNode;
use lab::{Call, Moment, Syscalls};

use crate::kill_points::{Traces, kill_at, moments};
use crate::networks::{call, chain, succeeded, used_node};

fn on_p(verb: &str) -> Call {
    let call = call(verb, &chain(&[])).container_id("p").ifname("eth0");
    call.netns("/run/netns/p")
}

/// Kills an ADD at every `step`th of its system calls, and lets `clean` clean up after each.
fn kill_and_clean(step: usize, clean: impl Fn(&PluginNode, &Moment)) {
    let plugin = used_node();
    let _pod = plugin.pod("p");
    let (before, traces) = (plugin.snapshot(), Traces::of(&plugin));
    let moments = moments(&plugin, &on_p("ADD"), Syscalls::All);
    assert!(moments.len() > 100, "too few to be true: {moments:?}");
    succeeded(plugin.run(&on_p("DEL")));
    let (mut killed, mut recorded) = (0, 0);
    for moment in moments.iter().skip(step / 2).step_by(step) {
        killed += usize::from(kill_at(&plugin, &on_p("ADD"), moment));
        recorded += usize::from(plugin.record("p").is_some());
        clean(&plugin, moment);
        assert_eq!(Traces::of(&plugin), traces, "killed before {moment:?}");
    }
    let all = moments.len().div_ceil(step);
    assert!(killed > all * 3 / 4, "only {killed} of {all} were killed");
    assert!(
        recorded > all / 4,
        "only {recorded} of {all} came as far as the first record"
    );
    plugin.node.assert_unchanged(&before);
}

#[test]
fn one_del_cleans_up_after_an_add_killed_at_any_system_call() {
    kill_and_clean(1, |plugin, moment| {
        let outcome = plugin.run(&on_p("DEL"));
        assert!(
            outcome.status.success(),
            "killed before {moment:?}: {outcome:?}"
        );
    });
}

#[test]
fn one_gc_cleans_up_after_an_add_killed_at_any_system_call() {
    kill_and_clean(1, |plugin, moment| {
        let outcome = plugin.gc(&chain(&[]), &[]);
        assert!(
            outcome.status.success(),
            "killed before {moment:?}: {outcome:?}"
        );
    });
}

#[test]
fn the_next_add_cleans_up_after_a_killed_one() {
    kill_and_clean(9, |plugin, moment| {
        // Nobody but headcni itself writes the record, and that is dead.
        let record = plugin.record("p");
        let outcome = plugin.run(&on_p("ADD"));
        if record.is_some_and(|record| record["progress"] == "done") {
            // It only could not say so any more, and a second ADD is refused.
            assert_eq!(
                outcome.err_code(),
                Some(102),
                "killed before {moment:?}: {outcome:?}"
            );
        } else {
            assert!(
                outcome.status.success(),
                "killed before {moment:?}: {outcome:?}"
            );
        }
        succeeded(plugin.run(&on_p("DEL")));
    });
}
