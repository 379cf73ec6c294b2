//! Start, end, signals: nothing of it is noticed by pods.

use std::time::{Duration, Instant};

use lab::Netns;

use crate::scene::{CONFLIST, Scene};

#[test]
fn a_node_gets_ready_and_pods_get_their_network() {
    let scene = Scene::new();
    let daemon = scene.start();
    let pod = scene.node.pod("p1").unwrap();
    let result = scene.add(&pod);
    assert_eq!(result["ips"][0]["address"], "10.244.1.2/24");
    pod.ping("10.244.1.1").unwrap();
    daemon.await_metric("headcni_ip_allocations_total{strategy=\"sequential\"}", 1.0);
    let pods = daemon.client().pods().unwrap();
    assert_eq!(pods.len(), 1, "{pods:?}");
    assert_eq!(
        pods[0].ips,
        ["10.244.1.2".parse::<std::net::IpAddr>().unwrap()]
    );
    scene.del(&pod);
    scene.eventually("the pod is forgotten", || {
        daemon.client().pods().unwrap().is_empty().then_some(())
    });
    assert!(scene.links().is_empty());
}

#[test]
fn it_ends_in_time_and_leaves_pods_alone() {
    let scene = Scene::new();
    let daemon = scene.start();
    let (one, two) = (scene.node.pod("p1").unwrap(), scene.node.pod("p2").unwrap());
    scene.add(&one);
    scene.add(&two);
    let start = Instant::now();
    let output = daemon.stop();
    assert!(output.status.success(), "{output:?}");
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
    one.ping("10.244.1.3").unwrap();
    let three = scene.node.pod("p3").unwrap();
    scene.add(&three);
    three.ping("10.244.1.2").unwrap();
    assert!(scene.read(CONFLIST).is_some());
}

#[test]
fn a_second_daemon_is_refused_by_the_first() {
    let scene = Scene::new();
    let daemon = scene.start();
    let second = scene.command(&["run"]);
    assert!(!second.status.success());
    let pid = daemon.running.pid().to_string();
    assert!(second.stderr.contains(&pid), "{second:?}");
    assert!(daemon.condition("SocketOpen").is_some());
}

#[test]
fn a_restart_forgets_nothing() {
    let scene = Scene::new();
    let pods: Vec<_> = (0..5)
        .map(|nth| scene.node.pod(&format!("p{nth}")).unwrap())
        .collect();
    let daemon = scene.start();
    for pod in &pods {
        scene.add(pod);
    }
    scene.eventually("five pods are known", || {
        (daemon.client().pods().unwrap().len() == 5).then_some(())
    });
    let before = daemon.client().pods().unwrap();
    daemon.kill();
    let daemon = scene.start();
    let after = daemon.client().pods().unwrap();
    assert_eq!(after, before);
    daemon.await_metric("headcni_pods", 5.0);
}

#[test]
fn calls_made_while_it_was_down_are_counted_later() {
    let scene = Scene::new();
    scene.start().stop();
    let pod = scene.node.pod("p1").unwrap();
    scene.add(&pod);
    scene.del(&pod);
    let daemon = scene.start();
    daemon.await_metric("headcni_plugin_events_total{request=\"spool\"}", 2.0);
    daemon.await_metric("headcni_ip_allocations_total{strategy=\"sequential\"}", 1.0);
}

#[test]
fn a_reload_takes_over_what_is_sound_and_refuses_what_is_not() {
    let scene = Scene::new();
    let daemon = scene.start();
    scene.configure(
        "network: {podCIDR: {nodeLocal: 10.244.1.0/24, base: 10.244.0.0/16}, mtu: 1400}",
    );
    daemon.reload();
    scene.eventually("the MTU is in the configuration", || {
        scene.read(CONFLIST)?.contains("1400").then_some(())
    });
    scene.configure("network: {podCIDR: {nodeLocal: 10.244.1.0/24}, mtuu: 1300}");
    daemon.reload();
    let message = daemon.await_condition("ConfigurationLoaded", "False");
    assert!(message.contains("daemon.yaml:1:"), "{message}");
    assert!(scene.read(CONFLIST).unwrap().contains("1400"));
    assert_eq!(
        daemon.get("/ready").unwrap().status,
        200,
        "it goes on as before"
    );
    scene.configure("network: {podCIDR: {nodeLocal: 10.244.1.0/24}}");
    daemon.reload();
    daemon.await_condition("ConfigurationLoaded", "True");
}

#[test]
fn leases_stay_where_they_are_while_pods_have_some() {
    let scene = Scene::new();
    let daemon = scene.start();
    let pod = scene.node.pod("p1").unwrap();
    scene.add(&pod);
    scene.eventually("the pod is known", || {
        (daemon.client().pods().unwrap().len() == 1).then_some(())
    });
    let renamed =
        "{network: {podCIDR: {nodeLocal: 10.244.1.0/24, base: 10.244.0.0/16}}, cni: {name: other}}";
    scene.configure(renamed);
    daemon.reload();
    let message = daemon.await_condition("ConfigurationLoaded", "False");
    assert!(message.contains("drain the node"), "{message}");
    assert_eq!(scene.conf()["name"], "headcni");
    scene.del(&pod);
    scene.eventually("the pod is forgotten", || {
        daemon.client().pods().unwrap().is_empty().then_some(())
    });
    daemon.reload();
    scene.eventually("the network has its new name", || {
        (scene.conf()["name"] == "other").then_some(())
    });
}

#[test]
fn health_is_answered_though_nothing_is_known() {
    let scene = Scene::with("network: {mtu: 1280}");
    let daemon = scene.launch();
    let message = daemon.await_condition("PodCIDRKnown", "False");
    assert!(message.contains("nodeLocal"), "{message}");
    assert_eq!(daemon.get("/healthz").unwrap().status, 200);
    assert_eq!(daemon.get("/ready").unwrap().status, 503);
    assert!(scene.read(CONFLIST).is_none(), "nothing is guessed");
    // A file comes, and everything with it.
    scene.sh(
        "mkdir -p /var/lib/kubelet; echo 'podCIDR: 10.9.9.0/24' > /var/lib/kubelet/config.yaml",
    );
    scene.eventually("the node is ready", || {
        (daemon.get("/ready")?.status == 200).then_some(())
    });
    assert!(scene.read(CONFLIST).unwrap().contains("10.9.9.0/24"));
}

#[test]
fn the_variable_is_the_second_source() {
    let scene = Scene::with("network: {mtu: 1280}");
    let daemon = scene.launch_with(&[("NODE_POD_CIDR", "10.7.7.0/24")]);
    daemon.await_ready();
    let known = daemon.client().pod_cidr().unwrap();
    assert_eq!(known.source.as_deref(), Some("NODE_POD_CIDR"));
    scene.configure("network: {podCIDR: {nodeLocal: 10.244.1.0/24}}");
    daemon.reload();
    scene.eventually("the configuration wins", || {
        scene
            .read(CONFLIST)?
            .contains("10.244.1.0/24")
            .then_some(())
    });
}
