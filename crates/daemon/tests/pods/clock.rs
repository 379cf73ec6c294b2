//! A clock that jumps makes nothing old.

use rstest::rstest;

use crate::agent::{GRACE, INTERVAL, Step};
use crate::dead::wait_for_link;
use crate::scene::{STATE_DIR, Scene, native, one};

#[rstest]
#[case::years_ahead(10 * 365 * 86400)]
#[case::hours_ahead(7200)]
#[case::hours_back(-7200)]
fn a_jump_between_looks_makes_nothing_old(#[case] jump: i64) {
    let scene = Scene::used(&native());
    let (pod, _) = scene.attached("p", &native());
    pod.delete().unwrap();
    wait_for_link(&scene, 0);
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
    let reports = scene.agent(steps);
    for report in &reports[..3] {
        assert_eq!(report.collected, []);
    }
    assert_eq!(reports[3].collected, [one("state", "p", "Died")]);
}

#[rstest]
#[case::of_the_future("now + 10 years")]
#[case::of_1970("1970-01-02")]
fn a_record_with_a_wrong_time_waits_for_two_looks_at_least(#[case] time: &str) {
    let scene = Scene::used(&native());
    let (pod, _) = scene.attached("p", &native());
    pod.delete().unwrap();
    wait_for_link(&scene, 0);
    scene.shell(&format!("touch -d '{time}' {STATE_DIR}/p@eth0.json"));
    let reports = scene.agent(vec![
        Step::pass(0),
        Step::pass(INTERVAL - 1),
        Step::pass(GRACE),
    ]);
    assert_eq!(reports[0].collected, []);
    assert_eq!(reports[1].collected, []);
    assert_eq!(reports[2].collected, [one("state", "p", "Died")]);
}
