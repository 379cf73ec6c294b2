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
