//! After `uninstall` the node is as if headcni had never been there.

use lab::Netns;

use crate::scene::Scene;

#[test]
fn everything_is_gone_and_others_are_back() {
    let scene = Scene::new();
    scene.sh("echo '{\"name\":\"x\",\"type\":\"bridge\"}' > /etc/cni/net.d/05-other.conf");
    let before = scene
        .node
        .snapshot(&[
            "/etc/cni",
            "/var/lib/cni",
            "/var/lib/headcni",
            "/etc/NetworkManager",
            "/etc/systemd",
        ])
        .unwrap();
    let forward = scene.sh("cat /proc/sys/net/ipv4/ip_forward");
    let daemon = scene.start();
    let pod = scene.node.pod("p1").unwrap();
    scene.add(&pod);
    let refused = scene.command(&["uninstall"]);
    assert!(!refused.status.success(), "not while it runs: {refused:?}");
    daemon.stop();
    let done = scene.command(&["uninstall"]);
    assert!(done.status.success(), "{done:?}");
    assert_eq!(scene.sh("cat /proc/sys/net/ipv4/ip_forward"), forward);
    assert_eq!(scene.sh("nft list tables"), "");
    assert!(scene.links().is_empty());
    assert_eq!(
        scene.sh("ls /run/headcni 2>&1 || true").trim(),
        "ls: cannot access '/run/headcni': No such file or directory"
    );
    let again = scene.command(&["uninstall"]);
    assert!(again.status.success(), "twice is fine: {again:?}");
    pod.run(["true"]).unwrap();
    scene.node.assert_unchanged(&before);
}

#[test]
fn parts_of_the_mesh_s_own_network_are_found_without_its_name() {
    let scene = Scene::new();
    let before = scene.node.snapshot(&[]).unwrap();
    // What is there after `ip netns delete headcni-mesh`, each alone.
    for part in [
        "nft add table inet headcni-mesh",
        "ip link add hcmesh0 type veth peer name host0",
        "ip rule add priority 5205 from 198.51.100.106 lookup main protocol 104",
        "ip -6 rule add priority 5205 to fd8b:5e1f:7c42::2 lookup main protocol 104",
    ] {
        scene.sh(part);
        let done = scene.command(&["uninstall"]);
        assert!(done.status.success(), "{part}: {done:?}");
        let words = "took the mesh's own network away";
        assert!(done.stdout.contains(words), "{part}: {done:?}");
        scene.node.assert_unchanged(&before);
    }
}

#[test]
fn directories_that_something_is_mounted_at_are_emptied() {
    let scene = Scene::new();
    for dir in ["/run/headcni", "/var/lib/headcni", "/var/lib/cni/headcni"] {
        scene.sh(&format!("mkdir -p {dir}; mount -t tmpfs tmpfs {dir}"));
    }
    scene.start().stop();
    let done = scene.command(&["uninstall"]);
    assert!(done.status.success(), "{done:?}");
    assert_eq!(
        scene.sh("ls -A /run/headcni /var/lib/headcni").trim(),
        "/run/headcni:\n\n/var/lib/headcni:"
    );
}
