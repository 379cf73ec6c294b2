//! Links of default routes are tuned for the mesh's packets, and get back what they had.

use lab::Netns;
use node_hostnet::{self, MeshRoutes, PodLinks};

use super::{Meshed, mesh, wanted, ways};

fn tuning() -> MeshRoutes {
    MeshRoutes {
        tune_links: true,
        ..mesh()
    }
}

/// As ethtool shows it.
fn features(meshed: &Meshed, link: &str) -> [bool; 2] {
    let all = meshed.node().run(["ethtool", "-k", link]).unwrap().stdout;
    ["rx-udp-gro-forwarding: ", "rx-gro-list: "].map(|feature| {
        let mut shown = all.lines().filter_map(|line| line.strip_prefix(feature));
        shown.next().unwrap().starts_with("on")
    })
}

#[test]
fn links_are_tuned_while_they_are_to_be() {
    let meshed = Meshed::new();
    let scene = &meshed.scene;
    scene.run("ethtool -K up0 rx-gro-list on");
    scene.passed(&wanted(Some(&mesh())));
    assert_eq!(
        features(&meshed, "up0"),
        [false, true],
        "nobody asked for it"
    );
    let tuned = wanted(Some(&tuning()));
    let repairs = scene.passed(&tuned);
    let expected = [
        "rx-udp-gro-forwarding of up0 is on now",
        "rx-gro-list of up0 is off now",
    ];
    assert_eq!(repairs, expected);
    assert_eq!(features(&meshed, "up0"), [true, false]);
    assert_eq!(features(&meshed, "headcni01"), [false, false]);
    assert_eq!(scene.passed(&tuned), [""; 0]);
    // Somebody undoes it; what was there at first is still what counts.
    scene.run("ethtool -K up0 rx-udp-gro-forwarding off");
    assert_eq!(scene.passed(&tuned).len(), 1);
    for without in [wanted(Some(&mesh())), wanted(None)] {
        scene.passed(&tuned);
        assert_eq!(features(&meshed, "up0"), [true, false]);
        scene.passed(&without);
        assert_eq!(features(&meshed, "up0"), [false, true]);
        assert_eq!(scene.passed(&without), [""; 0]);
    }
}

#[test]
fn uninstalling_leaves_nothing_of_the_mesh() {
    let meshed = Meshed::new();
    let scene = &meshed.scene;
    let before = (
        ways(scene),
        features(&meshed, "up0"),
        scene.run("nft list ruleset"),
    );
    let remove = || {
        let place = scene.place();
        let outcome = scene
            .node
            .enter(|| node_hostnet::remove(&place, PodLinks::Delete));
        outcome.unwrap().unwrap();
    };
    scene.passed(&wanted(Some(&tuning())));
    assert_eq!(features(&meshed, "up0"), [true, false]);
    for _ in 0..2 {
        remove();
        let after = (
            ways(scene),
            features(&meshed, "up0"),
            scene.run("nft list ruleset"),
        );
        assert_eq!(after, before);
    }
    assert!(
        scene
            .node
            .links()
            .unwrap()
            .contains(&"headcni01".to_owned())
    );
    // Also of a link that is gone by now.
    scene.passed(&wanted(Some(&tuning())));
    scene.run("ip link delete up0");
    remove();
    assert_eq!(ways(scene), before.0);
}
