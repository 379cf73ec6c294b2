//! Clock jumps do not make an orphan old.

use rstest::rstest;

use crate::agent::{GRACE, INTERVAL, Step};
use crate::ended_pods::await_links;
use crate::fixture::{PodsNode, STATE_DIR, native, orphan};

#[rstest]
#[case::years_ahead(10 * 365 * 86400)]
#[case::hours_ahead(7200)]
#[case::hours_back(-7200)]
fn a_clock_jump_does_not_shorten_the_grace_period(#[case] jump: i64) {
    let fixture = PodsNode::used(&native());
    let (pod, _) = fixture.attached("p", &native());
    pod.delete().unwrap();
    await_links(&fixture, 0);
    let jumped = |seconds: u64| Step::Pass {
        monotonic: seconds,
        wall: i64::try_from(seconds).unwrap() + jump,
    };
    let steps = vec![
        Step::pass(0),
        jumped(INTERVAL),
        jumped(GRACE - 1),
        jumped(GRACE),
    ];
    let reports = fixture.agent(steps);
    for report in &reports[..3] {
        assert_eq!(report.collected, []);
    }
    assert_eq!(reports[3].collected, [orphan("state", "p", "Died")]);
}

#[rstest]
#[case::of_the_future("now + 10 years")]
#[case::of_1970("1970-01-02")]
fn a_record_with_a_wrong_mtime_needs_two_observations(#[case] time: &str) {
    let fixture = PodsNode::used(&native());
    let (pod, _) = fixture.attached("p", &native());
    pod.delete().unwrap();
    await_links(&fixture, 0);
    fixture.shell(&format!("touch -d '{time}' {STATE_DIR}/p@eth0.json"));
    let reports = fixture.agent(vec![
        Step::pass(0),
        Step::pass(INTERVAL - 1),
        Step::pass(GRACE),
    ]);
    assert_eq!(reports[0].collected, []);
    assert_eq!(reports[1].collected, []);
    assert_eq!(reports[2].collected, [orphan("state", "p", "Died")]);
}
