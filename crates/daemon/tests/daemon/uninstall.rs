//! `uninstall` leaves the node as it was before headcni.

use lab::Netns;
use lab::scenario::DaemonNode;

#[test]
fn uninstall_removes_everything_and_restores_other_conflists() {
    let node = DaemonNode::new();
    node.sh("echo '{\"name\":\"x\",\"type\":\"bridge\"}' > /etc/cni/net.d/05-other.conf");
    let before = node
        .node
        .snapshot(&[
            "/etc/cni",
            "/var/lib/cni",
            "/var/lib/headcni",
            "/etc/NetworkManager",
            "/etc/systemd",
        ])
        .unwrap();
    let forward = node.sh("cat /proc/sys/net/ipv4/ip_forward");
    let daemon = node.start_daemon();
    let pod = node.pod("p1");
    node.add(&pod);
    let refused = node.command(&["uninstall"]);
    assert!(
        !refused.status.success(),
        "refused while the daemon runs: {refused:?}"
    );
    daemon.stop();
    let done = node.command(&["uninstall"]);
    assert!(done.status.success(), "{done:?}");
    assert_eq!(node.sh("cat /proc/sys/net/ipv4/ip_forward"), forward);
    assert_eq!(node.sh("nft list tables"), "");
    assert!(node.pod_links().is_empty());
    assert_eq!(
        node.sh("ls /run/headcni 2>&1 || true").trim(),
        "ls: cannot access '/run/headcni': No such file or directory"
    );
    let again = node.command(&["uninstall"]);
    assert!(again.status.success(), "it is idempotent: {again:?}");
    pod.run(["true"]).unwrap();
    node.node.assert_unchanged(&before);
}

#[test]
fn remains_of_the_mesh_netns_are_removed_without_its_name() {
    let node = DaemonNode::new();
    let before = node.node.snapshot(&[]).unwrap();
    // What can remain after `ip netns delete headcni-mesh`.
    for part in [
        "nft add table inet headcni-mesh",
        "ip link add hcmesh0 type veth peer name host0",
        "ip rule add priority 5205 from 198.51.100.106 lookup main protocol 104",
        "ip -6 rule add priority 5205 to fd8b:5e1f:7c42::2 lookup main protocol 104",
    ] {
        node.sh(part);
        let done = node.command(&["uninstall"]);
        assert!(done.status.success(), "{part}: {done:?}");
        let expected = "removed tailscaled's netns";
        assert!(done.stdout.contains(expected), "{part}: {done:?}");
        node.node.assert_unchanged(&before);
    }
}

#[test]
fn directories_that_are_mount_points_are_emptied() {
    let node = DaemonNode::new();
    for dir in ["/run/headcni", "/var/lib/headcni", "/var/lib/cni/headcni"] {
        node.sh(&format!("mkdir -p {dir}; mount -t tmpfs tmpfs {dir}"));
    }
    node.start_daemon().stop();
    let done = node.command(&["uninstall"]);
    assert!(done.status.success(), "{done:?}");
    assert_eq!(
        node.sh("ls -A /run/headcni /var/lib/headcni").trim(),
        "/run/headcni:\n\n/var/lib/headcni:"
    );
}
