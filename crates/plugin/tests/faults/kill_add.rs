//! kill -9 at every system call of an ADD: one DEL, or one GC, leaves nothing behind.

use lab::{Call, Moment, Syscalls};

use crate::killing::{Traces, kill_at, moments};
use crate::scene::{Scene, call, chain, succeeded};

fn on_p(verb: &str) -> Call {
    let call = call(verb, &chain(&[])).container_id("p").ifname("eth0");
    call.netns("/run/netns/p")
}

/// Kills an ADD at every `step`th of its system calls, and lets `clean` clean up after each.
fn kill_and_clean(step: usize, clean: impl Fn(&Scene, &Moment)) {
    let scene = Scene::used();
    let _pod = scene.pod("p");
    let (before, traces) = (scene.snapshot(), Traces::of(&scene));
    let moments = moments(&scene, &on_p("ADD"), Syscalls::All);
    assert!(moments.len() > 100, "too few to be true: {moments:?}");
    succeeded(scene.run(&on_p("DEL")));
    let (mut killed, mut recorded) = (0, 0);
    for moment in moments.iter().skip(step / 2).step_by(step) {
        killed += usize::from(kill_at(&scene, &on_p("ADD"), moment));
        recorded += usize::from(scene.record("p").is_some());
        clean(&scene, moment);
        assert_eq!(Traces::of(&scene), traces, "killed before {moment:?}");
    }
    let all = moments.len().div_ceil(step);
    assert!(killed > all * 3 / 4, "only {killed} of {all} were killed");
    assert!(
        recorded > all / 4,
        "only {recorded} of {all} came as far as the first record"
    );
    scene.node.assert_unchanged(&before);
}

#[test]
fn one_del_cleans_up_after_an_add_killed_at_any_system_call() {
    kill_and_clean(1, |scene, moment| {
        let outcome = scene.run(&on_p("DEL"));
        assert!(
            outcome.status.success(),
            "killed before {moment:?}: {outcome:?}"
        );
    });
}

#[test]
fn one_gc_cleans_up_after_an_add_killed_at_any_system_call() {
    kill_and_clean(1, |scene, moment| {
        let outcome = scene.collect(&chain(&[]));
        assert!(
            outcome.status.success(),
            "killed before {moment:?}: {outcome:?}"
        );
    });
}

#[test]
fn the_next_add_cleans_up_after_a_killed_one() {
    kill_and_clean(9, |scene, moment| {
        // Nobody but headcni itself writes the record, and that is dead.
        let record = scene.record("p");
        let outcome = scene.run(&on_p("ADD"));
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
        succeeded(scene.run(&on_p("DEL")));
    });
}
