//! Pods on a bridge, and pods on none: each with the mesh, and after it.

use lab::eventually;
use node_config::{Config, Mode};

use super::{LINK, Meshed, NOBODY, THERE, mesh, wanted_by, way};
use crate::kept::while_kept;
use crate::scene::{BASE, GATEWAYS, LOCAL, SOON};

fn bridged() -> Config {
    let mut config = Config::default();
    config.cni.mode = Mode::Bridge;
    config
}

#[test]
fn a_bridge_s_address_is_sent_from_as_soon_as_there_is_one() {
    let meshed = Meshed::new();
    let node = meshed.node();
    let wanted = wanted_by(&bridged(), LOCAL, BASE, Some(&mesh()));
    while_kept(&meshed.scene, wanted.clone(), |kept| {
        for there in THERE {
            let (link, source) = way(node, there, &[]).unwrap();
            assert_eq!(link, LINK);
            assert!(!GATEWAYS.contains(&source.as_str()), "{source}");
        }
        // What the plugin bridge makes. One of the addresses is asked about for a while.
        meshed.scene.run(
            "ip link add headcni0 type bridge
             ip link set headcni0 up
             ip address add 10.9.3.1/24 dev headcni0
             ip address add fd00:9:0:3::1/64 dev headcni0
             ip link add v0 type veth peer name v1
             ip link set v0 master headcni0 up; ip link set v1 up",
        );
        let is_asked_about = SOON * 3;
        for (family, limit) in [(0, SOON), (1, is_asked_about)] {
            let source = || way(node, THERE[family], &[]).filter(|(_, s)| s == GATEWAYS[family]);
            let (link, _) = eventually(limit, "the source", source).unwrap();
            assert_eq!(link, LINK);
        }
        // Table main has the last word on this node's pods.
        for nobody in NOBODY {
            assert_eq!(way(node, nobody, &[]).unwrap().0, "headcni0");
        }
        kept.settle();
    });
    assert_eq!(meshed.scene.passed(&wanted), [""; 0]);
    meshed.scene.run("ip link delete headcni0");
    for (there, nobody) in THERE.iter().zip(NOBODY) {
        assert_eq!(way(node, nobody, &[]), None, "without a bridge");
        meshed.scene.passed(&wanted);
        assert_eq!(way(node, there, &[]).unwrap().0, LINK);
    }
    assert_eq!(meshed.scene.passed(&wanted), [""; 0]);
}
