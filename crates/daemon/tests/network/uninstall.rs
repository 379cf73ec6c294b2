//! Uninstall removes the host network.

use lab::Netns;
use node_hostnet::{self, PodLinks};

use crate::fixture::{HostnetNode, reaches, wanted, with_pods};

fn remove(fixture: &HostnetNode, links: PodLinks) {
    let place = fixture.place();
    let outcome = fixture
        .node
        .enter(|| node_hostnet::remove(&place, links))
        .unwrap();
    if let Err(error) = outcome {
        panic!("{}", node_core::error::display_chain(&error));
    }
}

#[test]
fn uninstall_removes_everything_that_reconciles_added() {
    let fixture = HostnetNode::new();
    for name in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
        fixture.node.sysctl(name, "0").unwrap();
    }
    fixture.run("ip link add up0 type veth peer name up1; ip link set up0 up");
    fixture
        .node
        .sysctl("net.ipv6.conf.up0.accept_ra", "1")
        .unwrap();
    let routes = fixture.node.routes().unwrap();
    let dump = "ip rule; ip -6 rule; ip address show lo; nft list ruleset";
    let listed = fixture.run(dump);
    fixture.passed(&wanted());
    fixture.passed(&wanted());
    assert_ne!(fixture.run(dump), listed);
    for _ in 0..2 {
        remove(&fixture, PodLinks::Keep);
        assert_eq!(fixture.run(dump), listed);
        for name in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
            assert_eq!(fixture.sysctl(name), "0", "{name}");
        }
        assert_eq!(fixture.sysctl("net.ipv6.conf.up0.accept_ra"), "1");
        let state = fixture.place().state_dir;
        assert_eq!(std::fs::read_dir(state).unwrap().count(), 0);
    }
    let is_lasting = |route: &&String| !route.contains("expires");
    let left = fixture.node.routes().unwrap();
    let left: Vec<&String> = left.iter().filter(is_lasting).collect();
    assert_eq!(left, routes.iter().collect::<Vec<_>>());
    // It can be set up again.
    assert!(!fixture.passed(&wanted()).is_empty());
}

#[test]
fn ip_forwarding_that_was_on_before_stays_on() {
    let fixture = HostnetNode::new();
    fixture.node.sysctl("net.ipv4.ip_forward", "1").unwrap();
    fixture.passed(&wanted());
    remove(&fixture, PodLinks::Keep);
    assert_eq!(fixture.sysctl("net.ipv4.ip_forward"), "1");
}

#[test]
fn pod_links_are_kept_or_deleted_on_request() {
    let fixture = HostnetNode::new();
    // The node needs a source address for its ping.
    fixture.run("ip address add 192.0.2.1/32 dev lo");
    let (a, of_a) = fixture.pod("a");
    let wanted = with_pods(&[&of_a], &[]);
    fixture.passed(&wanted);
    remove(&fixture, PodLinks::Keep);
    assert!(reaches(&fixture.node, of_a.addresses[0]));
    fixture.passed(&wanted);
    fixture.run("ip link add v0 type veth peer name v1");
    remove(&fixture, PodLinks::Delete);
    assert_eq!(fixture.node.links().unwrap(), ["v0", "v1"]);
    assert!(a.links().unwrap().is_empty());
}

#[test]
fn a_bridge_that_existed_before_is_kept_until_the_next_boot() {
    let fixture = HostnetNode::new();
    let add = "ip link add headcni0 type bridge";
    fixture.run(add);
    fixture.passed(&wanted());
    fixture.passed(&wanted());
    remove(&fixture, PodLinks::Delete);
    assert_eq!(fixture.node.links().unwrap(), ["headcni0"]);

    fixture.passed(&wanted());
    let memory = fixture.place().state_dir.join("network.json");
    let text = std::fs::read_to_string(&memory).unwrap();
    let boot = fixture.run("cat /proc/sys/kernel/random/boot_id");
    let earlier = text.replace(boot.trim(), "earlier");
    assert_ne!(earlier, text);
    node_core::files::write_atomic(&memory, earlier.as_bytes(), 0o600).unwrap();
    fixture.passed(&wanted());
    remove(&fixture, PodLinks::Delete);
    assert_eq!(fixture.node.links().unwrap(), [""; 0]);

    fixture.passed(&wanted());
    fixture.run(add);
    fixture.passed(&wanted());
    remove(&fixture, PodLinks::Delete);
    assert_eq!(fixture.node.links().unwrap(), [""; 0]);
}

#[test]
fn state_of_others_is_kept() {
    let fixture = HostnetNode::new();
    fixture.passed(&wanted());
    fixture.run(
        "nft add table inet mine
         ip route add unreachable 10.8.0.0/16 proto 104 metric 7
         ip rule add to 10.8.0.0/16 lookup main priority 5190
         ip address add 10.8.0.1/32 dev lo",
    );
    remove(&fixture, PodLinks::Keep);
    let left = fixture.run("nft list ruleset; ip route; ip rule; ip address show lo");
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
