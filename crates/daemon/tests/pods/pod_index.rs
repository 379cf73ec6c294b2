//! The index of pods, from events and after a restart.

use crate::agent::Step;
use crate::fixture::{NETWORK, PodsNode, native, with_port};

/// Calls the plugin for a container in a netns of the same name.
fn plugin(verb: &str, container: &str) -> Step {
    let script = format!(
        "test -e /run/netns/{container} || ip netns add {container}
        CNI_COMMAND={verb} CNI_CONTAINERID={container} CNI_NETNS=/run/netns/{container} \
        CNI_IFNAME=eth0 CNI_PATH=/opt/cni/bin /opt/cni/bin/headcni </run/conf >/dev/null"
    );
    Step::Shell(script)
}

fn with_conf() -> PodsNode {
    let fixture = PodsNode::used(&native());
    let conf = native().to_string();
    fixture.node.write("/run/conf", conf).unwrap();
    fixture
}

#[test]
fn events_add_and_remove_pods() {
    let fixture = with_conf();
    let reports = fixture.agent(vec![
        Step::Resync,
        plugin("ADD", "a"),
        Step::event("ADD", "a"),
        plugin("ADD", "b"),
        Step::event("ADD", "b"),
        Step::Report,
        plugin("DEL", "a"),
        Step::Report,
        Step::event("DEL", "a"),
        Step::Report,
    ]);
    let names = |index: usize| -> Vec<&str> {
        let known = reports[index].known.iter();
        known.map(|(container, ..)| container.as_str()).collect()
    };
    assert_eq!(names(5), ["a", "b"]);
    assert_eq!(reports[5].differences, [""; 0]);
    assert!(reports[5].known.iter().all(|one| one.1 == "Attached"));
    assert_eq!(reports[7].differences.len(), 1, "no event yet");
    assert_eq!(names(9), ["b"]);
    assert_eq!(reports[9].differences, [""; 0]);
}

#[test]
fn late_and_duplicate_events_are_harmless() {
    let fixture = with_conf();
    let reports = fixture.agent(vec![
        plugin("ADD", "a"),
        Step::event("DEL", "a"),
        Step::event("ADD", "a"),
        Step::event("ADD", "a"),
        Step::event("DEL", "never"),
        Step::Report,
        plugin("DEL", "a"),
        Step::event("ADD", "a"),
        Step::Report,
    ]);
    assert_eq!(reports[5].known.len(), 1);
    assert_eq!(reports[5].differences, [""; 0]);
    assert_eq!(reports[8].known, []);
    assert_eq!(reports[8].differences, [""; 0]);
}

#[test]
fn a_resync_finds_missed_events() {
    let fixture = with_conf();
    let reports = fixture.agent(vec![
        plugin("ADD", "a"),
        Step::event("ADD", "a"),
        plugin("ADD", "b"),
        plugin("DEL", "a"),
        Step::Report,
        Step::Resync,
        Step::Report,
    ]);
    assert_eq!(reports[4].differences.len(), 2, "{:?}", reports[4]);
    assert_eq!(reports[6].differences, [""; 0]);
    assert_eq!(reports[6].known[0].0, "b");
}

#[test]
fn a_restarted_daemon_has_the_same_index() {
    let fixture = with_conf();
    let (_a, address) = fixture.attached("a", &with_port(8080));
    let (b, _) = fixture.attached("b", &native());
    let reports = fixture.agent(vec![
        Step::event("ADD", "a"),
        Step::event("ADD", "b"),
        Step::Report,
    ]);
    let before = &reports[2];
    b.delete().unwrap();
    crate::ended_pods::await_links(&fixture, 1);
    let reports = fixture.agent(vec![Step::Resync, Step::Report]);
    let found = &reports[1];
    assert_eq!(found.known[0], before.known[0]);
    assert!(found.known[0].2.starts_with(&address));
    assert_eq!(before.known[1].1, "Attached");
    assert_eq!(found.known[1].1, "Gone");
    assert_eq!(found.links.len(), 1, "those of the living alone");
    assert_eq!(found.links[0].0, found.known[0].3);
    assert_eq!(found.ports, ["TCP port 8080", "TCP port 8080"], "v4 and v6");
}

#[test]
fn failed_adds_are_listed_with_their_record() {
    let fixture = with_conf();
    let failed = Step::Event {
        verb: "ADD".to_owned(),
        container: "a".to_owned(),
        code: Some(110),
    };
    let record = format!(
        "mkdir -p /var/lib/cni/headcni/{NETWORK}
        : > /var/lib/cni/headcni/{NETWORK}/a@eth0.json"
    );
    let reports = fixture.agent(vec![Step::Shell(record), failed, Step::Report]);
    assert_eq!(reports[2].failures, [110]);
    assert_eq!(reports[2].known[0].1, "HalfMade");
}
