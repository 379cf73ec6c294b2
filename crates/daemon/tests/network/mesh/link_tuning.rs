//! Links of default routes are tuned for the mesh's UDP packets, and restored.

use lab::Netns;
use node_hostnet::{self, MeshRoutes, PodLinks};

use super::{Meshed, mesh, rules_and_routes, wanted};

fn tuning() -> MeshRoutes {
    MeshRoutes {
        tune_links: true,
        ..mesh()
    }
}

fn features(meshed: &Meshed, link: &str) -> [bool; 2] {
    let all = meshed.node().run(["ethtool", "-k", link]).unwrap().stdout;
    ["rx-udp-gro-forwarding: ", "rx-gro-list: "].map(|feature| {
        let mut shown = all.lines().filter_map(|line| line.strip_prefix(feature));
        shown.next().unwrap().starts_with("on")
    })
}

#[test]
fn links_are_tuned_while_tune_links_is_set_and_then_restored() {
    let meshed = Meshed::new();
    let fixture = &meshed.fixture;
    fixture.run("ethtool -K up0 rx-gro-list on");
    fixture.passed(&wanted(Some(&mesh())));
    assert_eq!(
        features(&meshed, "up0"),
        [false, true],
        "not tuned without tuneLinks"
    );
    let tuned = wanted(Some(&tuning()));
    let repairs = fixture.passed(&tuned);
    let expected = [
        "set rx-udp-gro-forwarding of up0 on",
        "set rx-gro-list of up0 off",
    ];
    assert_eq!(repairs, expected);
    assert_eq!(features(&meshed, "up0"), [true, false]);
    assert_eq!(features(&meshed, "headcni01"), [false, false]);
    assert_eq!(fixture.passed(&tuned), [""; 0]);
    // An administrator reverts it; the original values are still the ones to restore.
    fixture.run("ethtool -K up0 rx-udp-gro-forwarding off");
    assert_eq!(fixture.passed(&tuned).len(), 1);
    for without in [wanted(Some(&mesh())), wanted(None)] {
        fixture.passed(&tuned);
        assert_eq!(features(&meshed, "up0"), [true, false]);
        fixture.passed(&without);
        assert_eq!(features(&meshed, "up0"), [false, true]);
        assert_eq!(fixture.passed(&without), [""; 0]);
    }
}

#[test]
fn uninstall_removes_mesh_routes_and_restores_link_features() {
    let meshed = Meshed::new();
    let fixture = &meshed.fixture;
    let before = (
        rules_and_routes(fixture),
        features(&meshed, "up0"),
        fixture.run("nft list ruleset"),
    );
    let remove = || {
        let place = fixture.place();
        let outcome = fixture
            .node
            .enter(|| node_hostnet::remove(&place, PodLinks::Delete));
        outcome.unwrap().unwrap();
    };
    fixture.passed(&wanted(Some(&tuning())));
    assert_eq!(features(&meshed, "up0"), [true, false]);
    for _ in 0..2 {
        remove();
        let after = (
            rules_and_routes(fixture),
            features(&meshed, "up0"),
            fixture.run("nft list ruleset"),
        );
        assert_eq!(after, before);
    }
    assert!(
        fixture
            .node
            .links()
            .unwrap()
            .contains(&"headcni01".to_owned())
    );
    // Also for a link that no longer exists.
    fixture.passed(&wanted(Some(&tuning())));
    fixture.run("ip link delete up0");
    remove();
    assert_eq!(rules_and_routes(fixture), before.0);
}
