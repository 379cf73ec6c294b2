//! A record that a plugin call holds locked is not an orphan.

use lab::{DEADLINE, Netns, Running, eventually};
use serde_json::{Value, json};

use crate::agent::{GRACE, INTERVAL, Step};
use crate::ended_pods::await_links;
use crate::fixture::{
    NETWORK, PodsNode, STATE_DIR, call, daily_observations, native, observations, orphan,
};

/// On ADD waits for a file and adds a link; on DEL deletes it.
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

/// A node with an ADD in progress.
fn started() -> (PodsNode, Running) {
    let fixture = PodsNode::used(&native());
    fixture.script("slow", SLOW);
    fixture.pod("p");
    let add = call("ADD", &slow()).container_id("p").ifname("eth0");
    // Only the ADD holds its output open.
    let quiet = ["sh", "-c", "exec \"$0\" >/dev/null 2>&1"];
    let add = add.netns("/run/netns/p").under(quiet);
    let running = fixture.spawn(&add);
    let is_begun = || fixture.node.has("/run/begun").then_some(());
    eventually(DEADLINE, "the plugin begins", is_begun).unwrap();
    (fixture, running)
}

fn signal(running: &Running, name: &str) {
    let pid = running.pid().to_string();
    let sent = std::process::Command::new("kill")
        .args([name, &pid])
        .status();
    assert!(sent.unwrap().success());
}

#[test]
fn a_stopped_add_is_not_collected_and_completes() {
    let (fixture, add) = started();
    signal(&add, "-STOP");
    let before = fixture.snapshot();
    assert_eq!(fixture.collected(daily_observations()), []);
    fixture.node.assert_unchanged(&before);
    signal(&add, "-CONT");
    fixture.node.write("/run/go", "").unwrap();
    assert!(add.wait(DEADLINE).unwrap().status.success());
    assert_eq!(fixture.record("p").unwrap()["progress"], "done");
    assert!(fixture.node.link("late").unwrap().is_some());
    fixture.assert_nothing_collected();
}

#[test]
fn the_child_plugin_of_a_killed_add_is_awaited() {
    let (fixture, add) = started();
    add.kill();
    assert!(!add.wait(DEADLINE).unwrap().status.success());
    assert_eq!(
        fixture.collected(daily_observations()),
        [],
        "its plugin is running"
    );

    fixture.node.write("/run/go", "").unwrap();
    let is_made = || fixture.node.link("late").unwrap().map(drop);
    eventually(DEADLINE, "the plugin makes its link", is_made).unwrap();
    let is_free = || {
        let path = "/var/lib/cni/headcni/net/p@eth0.json";
        let tried = fixture.node.attempt(["flock", "--nonblock", path, "true"]);
        tried.unwrap().status.success().then_some(())
    };
    eventually(DEADLINE, "the plugin ends", is_free).unwrap();
    assert_eq!(
        fixture.collected(observations()),
        [orphan("state", "p", "HalfMade")]
    );
    assert!(fixture.node.link("late").unwrap().is_none());
    assert!(!fixture.has_record("p"));
}

/// Locks the record of container `p`, and unlocks it.
fn lock_and_unlock() -> (Step, Step) {
    let lock = format!(
        "flock {STATE_DIR}/p@eth0.json sh -c 'touch /run/held; \
         while [ ! -e /run/go ]; do sleep 0.01; done' >/dev/null 2>&1 &
         while [ ! -e /run/held ]; do sleep 0.01; done"
    );
    let unlock = format!("touch /run/go; flock {STATE_DIR}/p@eth0.json true");
    (Step::Shell(lock), Step::Shell(unlock))
}

fn dead() -> PodsNode {
    let fixture = PodsNode::used(&native());
    let (pod, _) = fixture.attached("p", &native());
    pod.delete().unwrap();
    await_links(&fixture, 0);
    fixture
}

#[test]
fn the_grace_period_starts_when_the_lock_is_released() {
    let (lock, unlock) = lock_and_unlock();
    let reports = dead().agent(vec![
        lock,
        Step::pass(0),
        unlock,
        Step::pass(GRACE + 1),
        Step::pass(GRACE + INTERVAL),
        Step::pass(GRACE + INTERVAL + 1),
    ]);
    for report in &reports[..5] {
        assert_eq!(report.collected, []);
    }
    assert_eq!(reports[5].collected, [orphan("state", "p", "Died")]);
}

#[test]
fn a_lock_at_the_last_moment_restarts_the_grace_period() {
    let (lock, unlock) = lock_and_unlock();
    let reports = dead().agent(vec![
        Step::pass(0),
        lock,
        Step::pass(GRACE + 1),
        unlock,
        Step::pass(GRACE + 2),
        Step::pass(2 * GRACE + 2),
    ]);
    assert_eq!(reports[2].troubles, [""; 0]);
    for report in &reports[..5] {
        assert_eq!(report.collected, [], "the grace period restarts");
    }
    assert_eq!(reports[5].collected, [orphan("state", "p", "Died")]);
}
