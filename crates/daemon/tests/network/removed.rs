//! What is left after `uninstall`: nothing.

use lab::Netns;
use node_hostnet::{self, PodLinks};

use crate::scene::{Scene, reaches, wanted, with_pods};

fn remove(scene: &Scene, links: PodLinks) {
    let place = scene.place();
    let outcome = scene
        .node
        .enter(|| node_hostnet::remove(&place, links))
        .unwrap();
    if let Err(error) = outcome {
        panic!("{}", node_core::error::display_chain(&error));
    }
}

#[test]
fn nothing_is_left_of_what_passes_made() {
    let scene = Scene::new();
    for name in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
        scene.node.sysctl(name, "0").unwrap();
    }
    scene.run("ip link add up0 type veth peer name up1; ip link set up0 up");
    scene
        .node
        .sysctl("net.ipv6.conf.up0.accept_ra", "1")
        .unwrap();
    let routes = scene.node.routes().unwrap();
    let dump = "ip rule; ip -6 rule; ip address show lo; nft list ruleset";
    let listed = scene.run(dump);
    scene.passed(&wanted());
    scene.passed(&wanted());
    assert_ne!(scene.run(dump), listed);
    for _ in 0..2 {
        remove(&scene, PodLinks::Keep);
        assert_eq!(scene.run(dump), listed);
        for name in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
            assert_eq!(scene.sysctl(name), "0", "{name}");
        }
        assert_eq!(scene.sysctl("net.ipv6.conf.up0.accept_ra"), "1");
        let state = scene.place().state_dir;
        assert_eq!(std::fs::read_dir(state).unwrap().count(), 0);
    }
    let is_lasting = |route: &&String| !route.contains("expires");
    let left = scene.node.routes().unwrap();
    let left: Vec<&String> = left.iter().filter(is_lasting).collect();
    assert_eq!(left, routes.iter().collect::<Vec<_>>());
    // And it can be made again.
    assert!(!scene.passed(&wanted()).is_empty());
}

#[test]
fn a_forwarding_node_stays_one() {
    let scene = Scene::new();
    scene.node.sysctl("net.ipv4.ip_forward", "1").unwrap();
    scene.passed(&wanted());
    remove(&scene, PodLinks::Keep);
    assert_eq!(scene.sysctl("net.ipv4.ip_forward"), "1");
}

#[test]
fn pods_links_go_if_they_are_to_and_else_stay() {
    let scene = Scene::new();
    // Without one of its own, the node would have no address left to ask from.
    scene.run("ip address add 192.0.2.1/32 dev lo");
    let (a, of_a) = scene.pod("a");
    let wanted = with_pods(&[&of_a], &[]);
    scene.passed(&wanted);
    remove(&scene, PodLinks::Keep);
    assert!(reaches(&scene.node, of_a.addresses[0]));
    scene.passed(&wanted);
    scene.run("ip link add v0 type veth peer name v1");
    remove(&scene, PodLinks::Delete);
    assert_eq!(scene.node.links().unwrap(), ["v0", "v1"]);
    assert!(a.links().unwrap().is_empty());
}

#[test]
fn a_bridge_that_was_there_before_us_stays_until_the_next_boot() {
    let scene = Scene::new();
    let add = "ip link add headcni0 type bridge";
    scene.run(add);
    scene.passed(&wanted());
    scene.passed(&wanted());
    remove(&scene, PodLinks::Delete);
    assert_eq!(scene.node.links().unwrap(), ["headcni0"]);

    scene.passed(&wanted());
    let memory = scene.place().state_dir.join("network.json");
    let text = std::fs::read_to_string(&memory).unwrap();
    let boot = scene.run("cat /proc/sys/kernel/random/boot_id");
    let earlier = text.replace(boot.trim(), "earlier");
    assert_ne!(earlier, text);
    node_core::files::write_atomic(&memory, earlier.as_bytes(), 0o600).unwrap();
    scene.passed(&wanted());
    remove(&scene, PodLinks::Delete);
    assert_eq!(scene.node.links().unwrap(), [""; 0]);

    scene.passed(&wanted());
    scene.run(add);
    scene.passed(&wanted());
    remove(&scene, PodLinks::Delete);
    assert_eq!(scene.node.links().unwrap(), [""; 0]);
}

#[test]
fn things_of_others_stay() {
    let scene = Scene::new();
    scene.passed(&wanted());
    scene.run(
        "nft add table inet mine
         ip route add unreachable 10.8.0.0/16 proto 104 metric 7
         ip rule add to 10.8.0.0/16 lookup main priority 5190
         ip address add 10.8.0.1/32 dev lo",
    );
    remove(&scene, PodLinks::Keep);
    let left = scene.run("nft list ruleset; ip route; ip rule; ip address show lo");
    for part in [
        "table inet mine",
        "10.8.0.0/16 proto 104",
        "5190",
        "10.8.0.1/32",
    ] {
        assert!(left.contains(part), "{part} in {left}");
    }
    assert!(!left.contains("10.9."), "{left}");
}
