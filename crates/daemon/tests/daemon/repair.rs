//! What others break is whole again within a second, and what can't be written is said and tried
//! again.

use lab::{Netns, eventually};

use crate::scene::{CONFLIST, REPAIRED, Scene};

#[track_caller]
fn repaired(what: &str, probe: impl FnMut() -> Option<()>) {
    eventually(REPAIRED, what, probe).unwrap();
}

/// One that is lost must not take all the time there is.
fn quick_ping(address: &str) -> [&str; 7] {
    ["ping", "-n", "-c", "1", "-W", "1", address]
}

#[test]
fn a_configuration_that_is_deleted_or_edited_comes_back() {
    let scene = Scene::new();
    let _daemon = scene.start();
    let right = scene.read(CONFLIST).unwrap();
    for harm in [
        format!("rm {CONFLIST}"),
        format!("echo nonsense > {CONFLIST}"),
        "rm -rf /etc/cni".to_owned(),
        format!("rm {CONFLIST}; mkdir {CONFLIST}; rmdir {CONFLIST}"),
    ] {
        scene.sh(&harm);
        repaired(&harm, || (scene.read(CONFLIST)? == right).then_some(()));
    }
    scene.sh("rm /run/headcni/subnet.env");
    repaired("subnet.env", || {
        scene.read("/run/headcni/subnet.env").map(drop)
    });
}

#[test]
fn what_pods_share_comes_back_and_they_keep_talking() {
    let scene = Scene::with(
        "network: {podCIDR: {nodeLocal: \"10.244.1.0/24,fd00:1::/64\", base: \"10.244.0.0/16,fd00::/16\"}}",
    );
    let _daemon = scene.start();
    let (one, two) = (scene.node.pod("p1").unwrap(), scene.node.pod("p2").unwrap());
    scene.add(&one);
    let result = scene.add(&two);
    let addresses: Vec<String> = result["ips"]
        .as_array()
        .unwrap()
        .iter()
        .map(|ip| {
            ip["address"]
                .as_str()
                .unwrap()
                .split('/')
                .next()
                .unwrap()
                .to_owned()
        })
        .collect();
    let link = scene.links()[0].clone();
    for harm in [
        "nft flush ruleset".to_owned(),
        "nft delete table inet headcni".to_owned(),
        "ip rule del priority 5190; ip -6 rule del priority 5190".to_owned(),
        "ip route del unreachable 10.244.1.0/24 metric 4000000".to_owned(),
        "ip address del 10.244.1.1/32 dev lo".to_owned(),
        "sysctl -qw net.ipv4.ip_forward=0".to_owned(),
        format!("ip link set {link} down; ip link set {link} up"),
    ] {
        scene.sh(&harm);
        let is_whole = || {
            let tables = scene.sh("nft list tables");
            let rules = scene.sh("ip rule; ip -6 rule");
            let routes = scene.sh("ip route show table main type unreachable");
            let forward = scene.sh("cat /proc/sys/net/ipv4/ip_forward");
            (tables.lines().any(|line| line == "table inet headcni")
                && tables.contains("headcni-ports")
                && rules.matches("5190:").count() == 2
                && routes.contains("10.244.1.0/24")
                && forward.trim() == "1"
                && scene.sh("ip address show lo").contains("10.244.1.1/32"))
            .then_some(())
        };
        repaired(&harm, is_whole);
        repaired(&format!("traffic after: {harm}"), || {
            addresses
                .iter()
                .all(|address| one.run(quick_ping(address)).is_ok())
                .then_some(())
        });
    }
}

#[test]
fn what_cannot_be_written_is_told_and_written_when_it_can() {
    let scene = Scene::new();
    scene.sh("mount -t tmpfs -o size=64k tmpfs /etc/cni/net.d; head -c 1M /dev/zero > /etc/cni/net.d/filler || true");
    let daemon = scene.launch();
    let message = daemon.await_condition("CNIConfigWritten", "False");
    assert!(message.contains("10-headcni.conflist"), "{message}");
    assert_eq!(daemon.get("/healthz").unwrap().status, 200);
    scene.sh("rm /etc/cni/net.d/filler");
    daemon.await_condition("CNIConfigWritten", "True");
    scene.sh("mount -o remount,ro /etc/cni/net.d");
    scene.configure(
        "network: {podCIDR: {nodeLocal: 10.244.1.0/24, base: 10.244.0.0/16}, mtu: 1400}",
    );
    daemon.reload();
    let message = daemon.await_condition("CNIConfigWritten", "False");
    assert!(message.to_lowercase().contains("read-only"), "{message}");
    scene.sh("mount -o remount,rw /etc/cni/net.d");
    scene.eventually("it is written", || {
        scene.read(CONFLIST)?.contains("1400").then_some(())
    });
    daemon.await_ready();
}
