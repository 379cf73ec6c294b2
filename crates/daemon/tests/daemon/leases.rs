//! Where leases are is changed only when no pod has one any more, also by a restart.

use lab::{Netns, Pod};
use serde_json::Value;

use crate::scene::{CONFLIST, Scene};

const NETWORK: &str = "network: {podCIDR: {nodeLocal: 10.244.1.0/24, base: 10.244.0.0/16}}";

fn configuration(more: &str) -> String {
    format!("{NETWORK}\n{more}")
}

/// Calls the real cnitool, as by the document that is there.
#[track_caller]
fn cnitool(scene: &Scene, verb: &str, pod: &Pod) -> Value {
    let tool = scene
        .node
        .cnitool("/etc/cni/net.d", verb, "headcni", pod.netns_path())
        .path("/opt/cni/bin");
    let outcome = tool.run().unwrap();
    outcome.ok().unwrap();
    outcome.json.unwrap_or_default()
}

/// Starts the daemon by a configuration that moves leases while one pod lives: new pods get their
/// addresses as before until it is gone, and then by the new configuration.
#[track_caller]
fn moves_later(before: &str, after: &str, is_new: impl Fn(&Value) -> bool) {
    let scene = Scene::with(&configuration(before));
    let (one, two) = (scene.node.pod("p1").unwrap(), scene.node.pod("p2").unwrap());
    let daemon = scene.start();
    let old_conf = scene.conf();
    let first = scene.add(&one);
    daemon.stop();

    scene.configure(&configuration(after));
    let daemon = scene.launch();
    let message = daemon.await_condition("CNIConfigWritten", "False");
    assert!(message.contains("1 running pods"), "{message}");
    assert!(message.contains("drain the node"), "{message}");
    assert_eq!(scene.conf(), old_conf, "nothing is changed");
    let second = scene.add(&two);
    assert_ne!(first["ips"], second["ips"]);
    two.ping("10.244.1.2").unwrap();

    for pod in [&one, &two] {
        let call = scene.call("DEL").pod(pod).conf(&old_conf);
        let deleted = call.run(&scene.node, lab::tools::headcni()).unwrap();
        deleted.ok().unwrap();
    }
    let message = daemon.await_condition("CNIConfigWritten", "True");
    assert!(is_new(&scene.conf()), "{message}");
    daemon.stop();
    let known = scene.read("/var/lib/headcni/leases.json").unwrap();
    assert_eq!(known.matches("\"network\"").count(), 1, "{known}");
}

#[test]
fn another_name_waits_for_the_pods_of_the_old_one() {
    moves_later("", "cni: {name: other}", |conf| conf["name"] == "other");
}

#[test]
fn another_directory_waits_for_the_pods_of_the_old_one() {
    moves_later("", "ipam: {dataDir: /var/lib/leases}", |conf| {
        conf["ipam"]["dataDir"] == "/var/lib/leases"
    });
}

#[test]
fn another_plugin_waits_for_the_pods_of_the_old_one() {
    moves_later(
        "ipam: {dataDir: /var/lib/headcni-leases/headcni}",
        "ipam: {type: host-local, dataDir: /var/lib/headcni-leases/headcni}",
        |conf| conf["ipam"]["type"] == "host-local",
    );
}

#[test]
fn a_lost_or_torn_memory_is_made_up_for_by_the_document() {
    for spoil in [
        "rm /var/lib/headcni/leases.json",
        "truncate -s 20 /var/lib/headcni/leases.json",
    ] {
        let scene = Scene::new();
        let pod = scene.node.pod("p1").unwrap();
        let daemon = scene.start();
        scene.add(&pod);
        daemon.stop();
        scene.sh(spoil);
        scene.configure(&configuration("cni: {name: other}"));
        let daemon = scene.launch();
        daemon.await_condition("CNIConfigWritten", "False");
        // The remedy that is said.
        scene.configure(&configuration(""));
        daemon.reload();
        daemon.await_condition("CNIConfigWritten", "True");
        assert_eq!(scene.conf()["name"], "headcni");
    }
}

#[test]
fn leases_of_the_dead_hold_nothing_up() {
    let scene = Scene::new();
    let pod = scene.node.pod("p1").unwrap();
    let daemon = scene.start();
    scene.add(&pod);
    daemon.stop();
    // As after a reboot: lease and record are there, and nothing else.
    pod.delete().unwrap();
    scene.eventually("the link is gone", || {
        scene.links().is_empty().then_some(())
    });
    assert_eq!(scene.leases().len(), 1);
    scene.configure(&configuration("cni: {name: other}"));
    let daemon = scene.start();
    assert_eq!(scene.conf()["name"], "other");
    daemon.stop();
}

#[test]
fn pods_on_a_bridge_hold_it_up_though_they_have_no_record() {
    let scene = Scene::with(&configuration("cni: {mode: bridge}"));
    let pod = scene.node.pod("p1").unwrap();
    let daemon = scene.start();
    cnitool(&scene, "add", &pod);
    daemon.stop();
    scene.configure(&configuration(
        "cni: {mode: bridge}\nipam: {dataDir: /var/lib/leases}",
    ));
    let daemon = scene.launch();
    let message = daemon.await_condition("CNIConfigWritten", "False");
    assert!(message.contains("1 running pods"), "{message}");
    assert!(!scene.read(CONFLIST).unwrap().contains("/var/lib/leases"));
    // A reload is refused for the same reason, and in the same words.
    scene.configure(&configuration(
        "cni: {mode: bridge}\nipam: {dataDir: /var/lib/others}",
    ));
    daemon.reload();
    let refused = daemon.await_condition("ConfigurationLoaded", "False");
    assert!(refused.contains("1 running pods"), "{refused}");
    cnitool(&scene, "del", &pod);
    daemon.await_condition("CNIConfigWritten", "True");
    assert!(scene.read(CONFLIST).unwrap().contains("/var/lib/leases"));
    daemon.stop();
    let done = scene.command(&["uninstall"]);
    assert!(done.status.success(), "{done:?}");
    assert!(scene.read("/var/lib/headcni/leases.json").is_none());
}

#[test]
fn leases_are_seen_wherever_the_configuration_puts_them() {
    for ipam in [
        "{dataDir: /var/lib/leases}",
        "{dataDir: /var/lib/leases/headcni}",
        "{type: host-local, dataDir: /var/lib/leases}",
        "{type: host-local, dataDir: /var/lib/leases/headcni}",
    ] {
        let scene = Scene::with(&configuration(&format!("ipam: {ipam}")));
        let pod = scene.node.pod("p1").unwrap();
        let daemon = scene.start();
        scene.add(&pod);
        scene.eventually("the pod is known", || {
            (daemon.client().pods().unwrap().len() == 1).then_some(())
        });
        let leases = daemon.client().leases().unwrap();
        assert_eq!(leases.len(), 1, "{ipam}: {leases:?}");
        assert_eq!(leases[0].container, "p1", "{ipam}");
        daemon.stop();
        let daemon = scene.start();
        daemon.await_metric("headcni_ip_pool_used{family=\"ipv4\"}", 1.0);
        daemon.stop();
    }
}
