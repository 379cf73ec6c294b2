//! The controllers in real time with short intervals.

use crate::agent::Step;
use crate::fixture::{PodsNode, native};

const SUBNETS: &str = "HEADCNI_NETWORK=10.9.0.0/16\nHEADCNI_SUBNET=10.9.0.1/24\n\
    HEADCNI_MTU=1280\nHEADCNI_IPMASQ=true\n";

#[test]
fn a_missed_pod_is_found_by_a_resync_and_its_orphan_is_collected() {
    let fixture = PodsNode::used(&native());
    let (_running, _) = fixture.attached("running", &native());
    fixture
        .node
        .write("/run/headcni/subnet.env", SUBNETS)
        .unwrap();
    fixture
        .node
        .write("/run/conf", native().to_string())
        .unwrap();
    let before = fixture.snapshot();
    // A pod without an event that ends without a DEL.
    let script = "ip netns add p
        CNI_COMMAND=ADD CNI_CONTAINERID=p CNI_NETNS=/run/netns/p CNI_IFNAME=eth0 \
        CNI_PATH=/opt/cni/bin /opt/cni/bin/headcni </run/conf >/dev/null
        ip netns delete p";
    let reports = fixture.agent(vec![
        Step::RunControllers {
            shell: String::new(),
            until: 1,
        },
        Step::Shell(script.to_owned()),
        Step::Resync,
        Step::Report,
        Step::RunControllers {
            shell: String::new(),
            until: 1,
        },
        Step::Resync,
        Step::Report,
    ]);
    let names: Vec<&str> = reports[3].known.iter().map(|one| one.0.as_str()).collect();
    assert_eq!(names, ["p", "running"]);
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
    fixture.node.assert_unchanged(&before);
}
