//! Unwritable disks and paths: the error has a remedy, and the daemon recovers without a
//! restart.

use lab::Netns;
use rstest::rstest;
use serde_json::json;

use crate::child_process::keys;
use crate::fixture::{CONF_DIR, CONFLIST, CniConfNode, KEPT, SUBNET_ENV};

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
fn an_obstacle_is_reported_and_the_files_are_written_once_it_is_gone(
    #[case] trouble: &str,
    #[case] remedy: &str,
    #[case] words: &[&str],
) {
    let fixture = CniConfNode::new();
    fixture.shell(&format!("mkdir -p {CONF_DIR}; {trouble}"));
    for _ in 0..2 {
        let error = fixture.ensure(&json!({})).unwrap_err().explained();
        for word in words.iter().chain(&["/etc/cni"]) {
            assert!(error.contains(word), "{word:?} is not in {error:?}");
        }
    }
    // Everything else has been written.
    assert!(fixture.node.has(SUBNET_ENV));
    assert!(fixture.node.has(KEPT));
    fixture.shell(remedy);
    fixture.ensure(&json!({})).unwrap();
    fixture.assert_in_place(&fixture.desired(&json!({})));
    let fill = fixture
        .list(CONF_DIR)
        .into_iter()
        .filter(|name| name.starts_with('.'));
    assert_eq!(fill.count(), 0, "temporary files are left");
}

#[test]
fn a_conflist_that_is_a_mount_point_is_reported() {
    let fixture = CniConfNode::ready();
    fixture.shell(&format!("mount --bind /etc/hostname {CONFLIST}"));
    let output = fixture.pass_inside();
    assert!(!output.status.success());
    let output = output.stderr;
    assert!(
        output.contains("mount its directory instead of the file"),
        "{output}"
    );
    fixture.shell(&format!("umount {CONFLIST}"));
    assert!(fixture.pass_inside().status.success());
    fixture.assert_in_place(&fixture.desired(&keys()));
}

#[test]
fn a_full_disk_keeps_the_old_conflist_intact() {
    let fixture = CniConfNode::new();
    fixture.shell("mkdir -p /etc/cni/net.d; mount -t tmpfs -o size=8k tmpfs /etc/cni/net.d");
    fixture.ensure(&json!({})).unwrap();
    let before = fixture.node.read(CONFLIST).unwrap();
    fixture.shell("dd if=/dev/zero of=/etc/cni/net.d/fill bs=4k 2>/dev/null || true");
    fixture.ensure(&keys()).unwrap_err();
    assert_eq!(fixture.node.read(CONFLIST).unwrap(), before);
    fixture.shell("rm /etc/cni/net.d/fill");
    fixture.ensure(&keys()).unwrap();
    fixture.assert_in_place(&fixture.desired(&keys()));
}

#[test]
fn without_a_writable_state_dir_other_conflists_are_kept() {
    let fixture = CniConfNode::new();
    let other = format!("{CONF_DIR}/20-other.conflist");
    fixture.node.write(&other, "{}").unwrap();
    fixture.shell("mkdir -p /var/lib/headcni; mount -t tmpfs -o ro tmpfs /var/lib/headcni");
    let error = fixture.ensure(&json!({})).unwrap_err().explained();
    assert!(error.contains("/var/lib/headcni/subnet.env"), "{error}");
    assert!(error.contains("/var/lib/headcni/set-aside.json"), "{error}");
    assert!(fixture.node.has(CONFLIST));
    assert!(fixture.node.has(&other), "it could not be restored");
    fixture.shell("umount /var/lib/headcni");
    fixture.ensure(&json!({})).unwrap();
    assert!(!fixture.node.has(&other));
}

#[test]
fn a_symlinked_conf_dir_works() {
    let fixture = CniConfNode::new();
    fixture.shell("mkdir -p /etc/cni /run/elsewhere; ln -s ../../run/elsewhere /etc/cni/net.d");
    fixture.ensure(&json!({})).unwrap();
    assert!(fixture.node.has("/run/elsewhere/10-headcni.conflist"));
    let links = fixture.node.attempt(["test", "-L", CONF_DIR]).unwrap();
    assert!(links.status.success(), "the link was replaced");
}
