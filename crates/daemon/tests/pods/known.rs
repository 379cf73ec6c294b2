//! Who is known, by events and after a restart.

use crate::agent::Step;
use crate::scene::{NETWORK, Scene, native, with_port};

/// Calls the plugin for a container in a namespace of its name.
fn plugin(verb: &str, container: &str) -> Step {
    let script = format!(
        "test -e /run/netns/{container} || ip netns add {container}
        CNI_COMMAND={verb} CNI_CONTAINERID={container} CNI_NETNS=/run/netns/{container} \
        CNI_IFNAME=eth0 CNI_PATH=/opt/cni/bin /opt/cni/bin/headcni </run/conf >/dev/null"
    );
    Step::Shell(script)
}

fn furnished() -> Scene {
    let scene = Scene::used(&native());
    let conf = native().to_string();
    scene.node.write("/run/conf", conf).unwrap();
    scene
}

#[test]
fn events_make_pods_known_and_gone() {
    let scene = furnished();
    let reports = scene.agent(vec![
        Step::Resync,
        plugin("ADD", "a"),
        Step::told("ADD", "a"),
        plugin("ADD", "b"),
        Step::told("ADD", "b"),
        Step::Tell,
        plugin("DEL", "a"),
        Step::Tell,
        Step::told("DEL", "a"),
        Step::Tell,
    ]);
    let names = |index: usize| -> Vec<&str> {
        let known = reports[index].known.iter();
        known.map(|(container, ..)| container.as_str()).collect()
    };
    assert_eq!(names(5), ["a", "b"]);
    assert_eq!(reports[5].differences, [""; 0]);
    assert!(reports[5].known.iter().all(|one| one.1 == "Attached"));
    assert_eq!(reports[7].differences.len(), 1, "nobody has told yet");
    assert_eq!(names(9), ["b"]);
    assert_eq!(reports[9].differences, [""; 0]);
}

#[test]
fn an_event_that_comes_late_or_twice_changes_nothing_that_is_true() {
    let scene = furnished();
    let reports = scene.agent(vec![
        plugin("ADD", "a"),
        Step::told("DEL", "a"),
        Step::told("ADD", "a"),
        Step::told("ADD", "a"),
        Step::told("DEL", "never"),
        Step::Tell,
        plugin("DEL", "a"),
        Step::told("ADD", "a"),
        Step::Tell,
    ]);
    assert_eq!(reports[5].known.len(), 1);
    assert_eq!(reports[5].differences, [""; 0]);
    assert_eq!(reports[8].known, []);
    assert_eq!(reports[8].differences, [""; 0]);
}

#[test]
fn what_was_missed_is_found_by_the_next_look_at_everything() {
    let scene = furnished();
    let reports = scene.agent(vec![
        plugin("ADD", "a"),
        Step::told("ADD", "a"),
        plugin("ADD", "b"),
        plugin("DEL", "a"),
        Step::Tell,
        Step::Resync,
        Step::Tell,
    ]);
    assert_eq!(reports[4].differences.len(), 2, "{:?}", reports[4]);
    assert_eq!(reports[6].differences, [""; 0]);
    assert_eq!(reports[6].known[0].0, "b");
}

#[test]
fn a_restart_forgets_nothing() {
    let scene = furnished();
    let (_a, address) = scene.attached("a", &with_port(8080));
    let (b, _) = scene.attached("b", &native());
    let reports = scene.agent(vec![
        Step::told("ADD", "a"),
        Step::told("ADD", "b"),
        Step::Tell,
    ]);
    let told = &reports[2];
    b.delete().unwrap();
    crate::dead::wait_for_link(&scene, 1);
    let reports = scene.agent(vec![Step::Resync, Step::Tell]);
    let found = &reports[1];
    assert_eq!(found.known[0], told.known[0]);
    assert!(found.known[0].2.starts_with(&address));
    assert_eq!(told.known[1].1, "Attached");
    assert_eq!(found.known[1].1, "Gone");
    assert_eq!(found.links.len(), 1, "those of the living alone");
    assert_eq!(found.links[0].0, found.known[0].3);
    assert_eq!(found.ports, ["TCP port 8080", "TCP port 8080"], "v4 and v6");
}

#[test]
fn failures_are_noted_with_what_they_left() {
    let scene = furnished();
    let failed = Step::Told {
        verb: "ADD".to_owned(),
        container: "a".to_owned(),
        code: Some(110),
    };
    let record = format!(
        "mkdir -p /var/lib/cni/headcni/{NETWORK}
        : > /var/lib/cni/headcni/{NETWORK}/a@eth0.json"
    );
    let reports = scene.agent(vec![Step::Shell(record), failed, Step::Tell]);
    assert_eq!(reports[2].failures, [110]);
    assert_eq!(reports[2].known[0].1, "HalfMade");
}
