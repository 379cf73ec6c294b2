//! The daemon's own loops, with real time and little patience.

use crate::agent::Step;
use crate::scene::{Scene, native};

const SUBNETS: &str = "HEADCNI_NETWORK=10.9.0.0/16\nHEADCNI_SUBNET=10.9.0.1/24\n\
    HEADCNI_MTU=1280\nHEADCNI_IPMASQ=true\n";

#[test]
fn what_is_missed_is_found_and_what_is_left_is_collected_and_counted() {
    let scene = Scene::used(&native());
    let (_lives, _) = scene.attached("lives", &native());
    scene
        .node
        .write("/run/headcni/subnet.env", SUBNETS)
        .unwrap();
    scene.node.write("/run/conf", native().to_string()).unwrap();
    let before = scene.snapshot();
    // Nobody tells of this pod, and it dies without a DEL.
    let script = "ip netns add p
        CNI_COMMAND=ADD CNI_CONTAINERID=p CNI_NETNS=/run/netns/p CNI_IFNAME=eth0 \
        CNI_PATH=/opt/cni/bin /opt/cni/bin/headcni </run/conf >/dev/null
        ip netns delete p";
    let reports = scene.agent(vec![
        Step::Keep {
            shell: String::new(),
            until: 1,
        },
        Step::Shell(script.to_owned()),
        Step::Resync,
        Step::Tell,
        Step::Keep {
            shell: String::new(),
            until: 1,
        },
        Step::Resync,
        Step::Tell,
    ]);
    let names: Vec<&str> = reports[3].known.iter().map(|one| one.0.as_str()).collect();
    assert_eq!(names, ["lives", "p"]);
    let last = &reports[6];
    assert_eq!(last.known.len(), 1);
    assert_eq!(last.differences, [""; 0]);
    assert_eq!(last.condition, (true, "no orphans".to_owned()), "{last:?}");
    for line in [
        "headcni_pods 1",
        "headcni_orphans{kind=\"state\"} 0",
        "headcni_orphans_collected_total{kind=\"state\"} 1",
        "headcni_ip_pool_size{family=\"ipv4\"} 253.0",
        "headcni_ip_pool_used{family=\"ipv4\"} 1.0",
    ] {
        assert!(last.metrics.contains(&line.to_owned()), "{line}: {last:?}");
    }
    scene.node.assert_unchanged(&before);
}
