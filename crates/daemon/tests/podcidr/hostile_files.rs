//! Files with credentials, and hostile files.

use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use rstest::rstest;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use crate::fixture::{PodCidrNode, file, nets, skipped};

const ADMIN: &str = "/etc/kubernetes/admin.conf";
const K3S: &str = "/etc/rancher/k3s/k3s.yaml";

/// Only CIDRs of a kubeconfig may be printed.
#[rstest]
#[case("users:\n- user:\n    token: t0psecret\n")]
#[case("users:\n- user: {token: t0psecret\n")]
#[case("podCIDR: t0psecret\n")]
#[case("podCIDRs: [10.0.0.0/8, t0psecret]\n")]
#[case("}\npodCIDR: t0psecret\n")]
#[case("}\n--cluster-cidr t0psecret\n")]
#[case("--cluster-cidr=t0psecret")]
#[case("? t0psecret: [\n")]
#[case("t0psecret: 1\nt0psecret: 2\n")]
#[case("x: *t0psecret\n")]
#[case("t0psecret\u{0}")]
fn nothing_of_a_kubeconfig_is_printed(#[case] text: &str) {
    for path in [ADMIN, K3S] {
        let discovery = PodCidrNode::with(&[(path, text)]).discover();
        let output = format!("{discovery}\n{discovery:?}");
        assert!(!output.contains("t0psecret"), "{output}");
        skipped(&discovery, &file(path));
    }
}

#[test]
fn a_kubeconfig_can_contain_cidrs() {
    let fixture = PodCidrNode::with(&[
        (K3S, "users: [{user: {token: x}}]\npodCIDR: 10.42.1.0/24\n"),
        (ADMIN, "preferences: {cluster-cidr: 10.42.0.0/16}\n"),
    ]);
    let (local, base, source) = fixture.found();
    assert_eq!((&*local, &*base), ("10.42.1.0/24", "10.42.0.0/16"));
    assert_eq!(source, file(K3S));
}

#[test]
fn endless_files_are_read_up_to_a_limit() {
    let list = |level: usize, item: &str| {
        let items = [item; 9].join(", ");
        format!("a{level}: &a{level} [{items}]\n")
    };
    let levels = (1..20).map(|level| list(level, &format!("*a{}", level - 1)));
    let bomb = list(0, "x") + &levels.collect::<String>();
    let deep = format!("a: {}", "[".repeat(900_000));
    let fixture = PodCidrNode::with(&[
        ("/var/lib/rancher/k3s/agent/etc/node-worker-1.yaml", &bomb),
        (K3S, &deep),
        (ADMIN, &"- ".repeat(400_000)),
        ("/var/lib/kubelet/config.yaml", "podCIDR: 10.244.1.0/24"),
    ]);
    let start = Instant::now();
    assert_eq!(fixture.found().0, "10.244.1.0/24");
    let took = start.elapsed();
    assert!(took < Duration::from_secs(30), "{took:?}");
}

#[test]
fn credential_files_are_not_opened_without_need() {
    let mut fixture = PodCidrNode::with(&[(ADMIN, "podCIDR: 10.244.1.0/24")]);
    let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
    let path = fixture.root().join(&ADMIN[1..]);
    inotify::add_watch(&watch, path, WatchFlags::OPEN).unwrap();
    let was_opened = || {
        let mut room = [MaybeUninit::uninit(); 512];
        inotify::Reader::new(&watch, &mut room).next().is_ok()
    };

    fixture.network.pod_cidr.base = nets("10.244.0.0/16");
    fixture.network.pod_cidr.node_local = nets("10.244.2.0/24");
    assert_eq!(fixture.found().0, "10.244.2.0/24");
    assert!(!was_opened());

    fixture.network.pod_cidr.node_local = nets("");
    assert_eq!(fixture.found().0, "10.244.1.0/24");
    assert!(was_opened());
}
