//! An ADD that takes its time: as long as somebody works on it, it is nobody's left-over.

use lab::{DEADLINE, Netns, Running, eventually};
use serde_json::{Value, json};

use crate::agent::{GRACE, INTERVAL, Step};
use crate::dead::wait_for_link;
use crate::scene::{NETWORK, STATE_DIR, Scene, call, looks, many_looks, native, one};

/// On ADD makes a link, but only when told to go on; on DEL deletes it.
const SLOW: &str = "
if [ $verb = ADD ]; then
    touch /run/begun
    while [ ! -e /run/go ]; do sleep 0.01; done
    ip link add late type bridge || exit 1
else
    ip link delete late 2>/dev/null
fi
echo '{\"cniVersion\": \"1.1.0\"}'";

fn slow() -> Value {
    json!({ "cniVersion": "1.1.0", "name": NETWORK, "type": "headcni",
            "delegate_timeout_seconds": 60, "plugins": [{ "type": "slow" }] })
}

/// A node on which an ADD is at work.
fn started() -> (Scene, Running) {
    let scene = Scene::used(&native());
    scene.script("slow", SLOW);
    scene.pod("p");
    let add = call("ADD", &slow()).container_id("p").ifname("eth0");
    // Nothing but the ADD holds its output.
    let quiet = ["sh", "-c", "exec \"$0\" >/dev/null 2>&1"];
    let add = add.netns("/run/netns/p").under(quiet);
    let running = scene.spawn(&add);
    let is_begun = || scene.node.has("/run/begun").then_some(());
    eventually(DEADLINE, "the plugin begins", is_begun).unwrap();
    (scene, running)
}

fn signal(running: &Running, name: &str) {
    let pid = running.pid().to_string();
    let sent = std::process::Command::new("kill")
        .args([name, &pid])
        .status();
    assert!(sent.unwrap().success());
}

#[test]
fn an_add_that_was_stopped_is_left_alone_and_comes_to_its_end() {
    let (scene, add) = started();
    signal(&add, "-STOP");
    let before = scene.snapshot();
    assert_eq!(scene.collected(many_looks()), []);
    scene.node.assert_unchanged(&before);
    signal(&add, "-CONT");
    scene.node.write("/run/go", "").unwrap();
    assert!(add.wait(DEADLINE).unwrap().status.success());
    assert_eq!(scene.record("p").unwrap()["progress"], "done");
    assert!(scene.node.link("late").unwrap().is_some());
    scene.assert_left_alone();
}

#[test]
fn the_plugins_of_a_killed_add_are_waited_for() {
    let (scene, add) = started();
    add.kill();
    assert!(!add.wait(DEADLINE).unwrap().status.success());
    assert_eq!(scene.collected(many_looks()), [], "its plugin is at work");

    scene.node.write("/run/go", "").unwrap();
    let is_made = || scene.node.link("late").unwrap().map(drop);
    eventually(DEADLINE, "the plugin makes its link", is_made).unwrap();
    let is_free = || {
        let path = "/var/lib/cni/headcni/net/p@eth0.json";
        let tried = scene.node.attempt(["flock", "--nonblock", path, "true"]);
        tried.unwrap().status.success().then_some(())
    };
    eventually(DEADLINE, "the plugin ends", is_free).unwrap();
    assert_eq!(scene.collected(looks()), [one("state", "p", "HalfMade")]);
    assert!(scene.node.link("late").unwrap().is_none());
    assert!(!scene.has_record("p"));
}

/// Holds the record of the container `p` until it is told to let go.
fn held() -> (Step, Step) {
    let hold = format!(
        "flock {STATE_DIR}/p@eth0.json sh -c 'touch /run/held; \
         while [ ! -e /run/go ]; do sleep 0.01; done' >/dev/null 2>&1 &
         while [ ! -e /run/held ]; do sleep 0.01; done"
    );
    let let_go = format!("touch /run/go; flock {STATE_DIR}/p@eth0.json true");
    (Step::Shell(hold), Step::Shell(let_go))
}

fn dead() -> Scene {
    let scene = Scene::used(&native());
    let (pod, _) = scene.attached("p", &native());
    pod.delete().unwrap();
    wait_for_link(&scene, 0);
    scene
}

#[test]
fn the_time_that_somebody_works_on_it_does_not_count() {
    let (hold, let_go) = held();
    let reports = dead().agent(vec![
        hold,
        Step::pass(0),
        let_go,
        Step::pass(GRACE + 1),
        Step::pass(GRACE + INTERVAL),
        Step::pass(GRACE + INTERVAL + 1),
    ]);
    for report in &reports[..5] {
        assert_eq!(report.collected, []);
    }
    assert_eq!(reports[5].collected, [one("state", "p", "Died")]);
}

#[test]
fn whoever_takes_hold_at_the_last_moment_is_let_be() {
    let (hold, let_go) = held();
    let reports = dead().agent(vec![
        Step::pass(0),
        hold,
        Step::pass(GRACE + 1),
        let_go,
        Step::pass(GRACE + 2),
        Step::pass(2 * GRACE + 2),
    ]);
    assert_eq!(reports[2].troubles, [""; 0]);
    for report in &reports[..5] {
        assert_eq!(report.collected, [], "it begins anew");
    }
    assert_eq!(reports[5].collected, [one("state", "p", "Died")]);
}
