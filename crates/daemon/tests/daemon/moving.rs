//! A node whose pods get other addresses from now on.

use lab::Netns;

use crate::scene::{CONFLIST, Scene};

#[test]
fn new_networks_take_the_place_of_the_old_ones_and_old_pods_stay_reachable() {
    let scene = Scene::new();
    let daemon = scene.start();
    let old = scene.node.pod("p1").unwrap();
    scene.add(&old);
    scene.configure("network: {podCIDR: {nodeLocal: 10.244.2.0/24, base: 10.244.0.0/16}}");
    daemon.reload();
    scene.eventually("the configuration has the new network", || {
        scene
            .read(CONFLIST)?
            .contains("10.244.2.0/24")
            .then_some(())
    });
    daemon.await_ready();
    scene.eventually("the old network is gone", || {
        let all = scene.sh("ip rule; ip route show table all; ip address show lo");
        let is_gone = !all.contains("10.244.1.0/24") && !all.contains("10.244.1.1/32");
        (is_gone && all.contains("10.244.2.0/24") && all.contains("10.244.2.1/32")).then_some(())
    });
    let new = scene.node.pod("p2").unwrap();
    let result = scene.add(&new);
    assert_eq!(result["ips"][0]["address"], "10.244.2.2/24");
    new.ping("10.244.1.2").unwrap();
    old.ping("10.244.2.2").unwrap();
    scene.node.ping("10.244.1.2").unwrap();
    // A flap costs neither of them its network.
    for link in scene.links() {
        scene.sh(&format!("ip link set {link} down; ip link set {link} up"));
    }
    let quick_ping = ["ping", "-n", "-c", "1", "-W", "1", "10.244.1.2"];
    scene.eventually("they talk again", || new.run(quick_ping).ok());
    let known = daemon.client().pod_cidr().unwrap();
    assert_eq!(known.local, ["10.244.2.0/24".parse().unwrap()]);
    scene.del(&old);
    scene.del(&new);
    assert!(scene.leases().is_empty(), "{:?}", scene.leases());
    assert!(scene.links().is_empty());
    daemon.stop();
    let done = scene.command(&["uninstall"]);
    assert!(done.status.success(), "{done:?}");
}

#[test]
fn many_changes_in_a_row_end_with_the_last_one() {
    let scene = Scene::new();
    let daemon = scene.start();
    for nth in 2..30 {
        scene.configure(&format!(
            "network: {{podCIDR: {{nodeLocal: 10.244.{nth}.0/24, base: 10.244.0.0/16}}, mtu: 13{nth:02}}}"
        ));
        daemon.reload();
    }
    scene.eventually("the last one is written", || {
        let conflist = scene.read(CONFLIST)?;
        (conflist.contains("10.244.29.0/24") && conflist.contains("1329")).then_some(())
    });
    scene.eventually("and nothing else is there", || {
        let all = scene.sh("ip rule; ip route show table all; ip address show lo");
        let mut networks: Vec<&str> = all
            .split_whitespace()
            .filter(|word| word.starts_with("10.244."))
            .collect();
        networks.sort_unstable();
        networks.dedup();
        let wanted = ["10.244.29.0/24", "10.244.29.1", "10.244.29.1/32"];
        networks
            .iter()
            .all(|word| wanted.contains(word))
            .then_some(())
    });
    daemon.await_ready();
}

#[test]
fn a_gateway_may_move_together_with_its_network() {
    let configuration = |nth: u8| {
        format!(
            "network: {{podCIDR: {{nodeLocal: 10.244.{nth}.0/24, base: 10.244.0.0/16}}}}
ipam: {{gateway: 10.244.{nth}.254}}"
        )
    };
    let scene = Scene::with(&configuration(1));
    let daemon = scene.start();
    for nth in 2..12 {
        scene.configure(&configuration(nth));
        daemon.reload();
        scene.eventually("the configuration and the network have both", || {
            let conflist = scene.read(CONFLIST)?;
            let is_written = conflist.contains(&format!("10.244.{nth}.0/24"))
                && conflist.contains(&format!("10.244.{nth}.254"));
            let gateway = format!("10.244.{nth}.254/32");
            (is_written && scene.sh("ip address show lo").contains(&gateway)).then_some(())
        });
        daemon.await_ready();
        let errors = daemon.metric("headcni_reconcile_errors_total{part=\"cniconf\"}");
        assert_eq!(errors, None, "no pass had anything to complain about");
    }
    let log = daemon.stop().stderr;
    assert!(
        !log.contains("condition does not hold"),
        "nothing was wrong: {log}"
    );
}
