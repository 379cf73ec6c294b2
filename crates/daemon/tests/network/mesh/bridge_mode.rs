//! Bridge mode with a mesh.

use lab::eventually;
use node_config::{Config, Mode};

use super::{LINK, Meshed, REMOTE_PODS, UNUSED_LOCAL, mesh, route_to, wanted_by};
use crate::controller::with_controller;
use crate::fixture::{BASE, GATEWAYS, LOCAL, SOON};

fn bridged() -> Config {
    let mut config = Config::default();
    config.cni.mode = Mode::Bridge;
    config
}

#[test]
fn the_bridge_address_becomes_the_source_as_soon_as_it_exists() {
    let meshed = Meshed::new();
    let node = meshed.node();
    let wanted = wanted_by(&bridged(), LOCAL, BASE, Some(&mesh()));
    with_controller(&meshed.fixture, wanted.clone(), |controller| {
        for there in REMOTE_PODS {
            let (link, source) = route_to(node, there, &[]).unwrap();
            assert_eq!(link, LINK);
            assert!(!GATEWAYS.contains(&source.as_str()), "{source}");
        }
        // As the bridge plugin does. The IPv6 address is tentative for a while.
        meshed.fixture.run(
            "ip link add headcni0 type bridge
             ip link set headcni0 up
             ip address add 10.9.3.1/24 dev headcni0
             ip address add fd00:9:0:3::1/64 dev headcni0
             ip link add v0 type veth peer name v1
             ip link set v0 master headcni0 up; ip link set v1 up",
        );
        let is_asked_about = SOON * 3;
        for (family, limit) in [(0, SOON), (1, is_asked_about)] {
            let source =
                || route_to(node, REMOTE_PODS[family], &[]).filter(|(_, s)| s == GATEWAYS[family]);
            let (link, _) = eventually(limit, "the source", source).unwrap();
            assert_eq!(link, LINK);
        }
        // Table main decides for local pods.
        for unused in UNUSED_LOCAL {
            assert_eq!(route_to(node, unused, &[]).unwrap().0, "headcni0");
        }
        controller.settle();
    });
    assert_eq!(meshed.fixture.passed(&wanted), [""; 0]);
    meshed.fixture.run("ip link delete headcni0");
    for (there, unused) in REMOTE_PODS.iter().zip(UNUSED_LOCAL) {
        assert_eq!(route_to(node, unused, &[]), None, "without a bridge");
        meshed.fixture.passed(&wanted);
        assert_eq!(route_to(node, there, &[]).unwrap().0, LINK);
    }
    assert_eq!(meshed.fixture.passed(&wanted), [""; 0]);
}
