//! Disks and paths that refuse: the error says what to do, and when it is done, all is well without
//! a restart.

use lab::Netns;
use rstest::rstest;
use serde_json::json;

use crate::inside::keys;
use crate::scene::{CONF_DIR, CONFLIST, KEPT, SUBNET_ENV, Scene};

#[rstest]
#[case::read_only(
    "mount -t tmpfs -o ro tmpfs /etc/cni/net.d", "mount -o remount,rw /etc/cni/net.d",
    &["read-write", "Read-only"])]
#[case::read_only_above(
    "mount -t tmpfs tmpfs /etc/cni; mount -o remount,ro /etc/cni", "mount -o remount,rw /etc/cni",
    &["read-write", "Read-only"])]
#[case::full(
    "mount -t tmpfs -o size=4k tmpfs /etc/cni/net.d; echo x >/etc/cni/net.d/fill",
    "rm /etc/cni/net.d/fill",
    &["free space", "No space left"])]
#[case::without_inodes(
    "mount -t tmpfs -o nr_inodes=2 tmpfs /etc/cni/net.d; touch /etc/cni/net.d/fill",
    "rm /etc/cni/net.d/fill",
    &["free space and inodes", "No space left"])]
#[case::immutable(
    "mount -t tmpfs tmpfs /etc/cni/net.d; chattr +i /etc/cni/net.d", "chattr -i /etc/cni/net.d",
    &["lsattr", "not permitted"])]
#[case::a_directory(
    "mkdir -p /etc/cni/net.d/10-headcni.conflist/sub", "rm -r /etc/cni/net.d/10-headcni.conflist",
    &["remove the directory"])]
#[case::no_directory(
    "rmdir /etc/cni/net.d; touch /etc/cni/net.d", "rm /etc/cni/net.d",
    &["/etc/cni/net.d is no directory", "cni.confDir"])]
#[case::no_directory_above(
    "rm -r /etc/cni; touch /etc/cni", "rm /etc/cni",
    &["/etc/cni is no directory"])]
#[case::a_dangling_link(
    "rmdir /etc/cni/net.d; ln -s /nowhere/net.d /etc/cni/net.d", "rm /etc/cni/net.d",
    &["/etc/cni/net.d is a link to /nowhere/net.d"])]
fn what_is_in_the_way_is_named_and_overcome(
    #[case] trouble: &str,
    #[case] remedy: &str,
    #[case] words: &[&str],
) {
    let scene = Scene::new();
    scene.shell(&format!("mkdir -p {CONF_DIR}; {trouble}"));
    for _ in 0..2 {
        let error = scene.ensure(&json!({})).unwrap_err().explained();
        for word in words.iter().chain(&["/etc/cni"]) {
            assert!(error.contains(word), "{word:?} is not in {error:?}");
        }
    }
    // What could be done has been done.
    assert!(scene.node.has(SUBNET_ENV));
    assert!(scene.node.has(KEPT));
    scene.shell(remedy);
    scene.ensure(&json!({})).unwrap();
    scene.assert_in_place(&scene.desired(&json!({})));
    let fill = scene
        .list(CONF_DIR)
        .into_iter()
        .filter(|name| name.starts_with('.'));
    assert_eq!(fill.count(), 0, "temporary files are left");
}

#[test]
fn a_file_that_is_a_mount_is_named_and_overcome() {
    let scene = Scene::ready();
    scene.shell(&format!("mount --bind /etc/hostname {CONFLIST}"));
    let output = scene.pass_inside();
    assert!(!output.status.success());
    let said = output.stderr;
    assert!(
        said.contains("mount its directory instead of the file"),
        "{said}"
    );
    scene.shell(&format!("umount {CONFLIST}"));
    assert!(scene.pass_inside().status.success());
    scene.assert_in_place(&scene.desired(&keys()));
}

#[test]
fn a_full_disk_keeps_the_old_configuration_whole() {
    let scene = Scene::new();
    scene.shell("mkdir -p /etc/cni/net.d; mount -t tmpfs -o size=8k tmpfs /etc/cni/net.d");
    scene.ensure(&json!({})).unwrap();
    let before = scene.node.read(CONFLIST).unwrap();
    scene.shell("dd if=/dev/zero of=/etc/cni/net.d/fill bs=4k 2>/dev/null || true");
    scene.ensure(&keys()).unwrap_err();
    assert_eq!(scene.node.read(CONFLIST).unwrap(), before);
    scene.shell("rm /etc/cni/net.d/fill");
    scene.ensure(&keys()).unwrap();
    scene.assert_in_place(&scene.desired(&keys()));
}

#[test]
fn without_a_place_for_the_ledger_ours_is_written_and_others_stay() {
    let scene = Scene::new();
    let other = format!("{CONF_DIR}/20-other.conflist");
    scene.node.write(&other, "{}").unwrap();
    scene.shell("mkdir -p /var/lib/headcni; mount -t tmpfs -o ro tmpfs /var/lib/headcni");
    let error = scene.ensure(&json!({})).unwrap_err().explained();
    assert!(error.contains("/var/lib/headcni/subnet.env"), "{error}");
    assert!(error.contains("/var/lib/headcni/set-aside.json"), "{error}");
    assert!(scene.node.has(CONFLIST));
    assert!(
        scene.node.has(&other),
        "nobody would know how to put it back"
    );
    scene.shell("umount /var/lib/headcni");
    scene.ensure(&json!({})).unwrap();
    assert!(!scene.node.has(&other));
}

#[test]
fn a_link_to_a_directory_is_as_good_as_one() {
    let scene = Scene::new();
    scene.shell("mkdir -p /etc/cni /run/elsewhere; ln -s ../../run/elsewhere /etc/cni/net.d");
    scene.ensure(&json!({})).unwrap();
    assert!(scene.node.has("/run/elsewhere/10-headcni.conflist"));
    let links = scene.node.attempt(["test", "-L", CONF_DIR]).unwrap();
    assert!(links.status.success(), "the link was replaced");
}
