//! Who reaches whom.

use lab::Netns;

use crate::scene::{Scene, dual_stack, ip};

#[test]
fn pods_reach_each_other_their_gateway_and_the_host() {
    let scene = Scene::new();
    let conf = dual_stack();
    let (one, first) = scene.attached("one", &conf);
    let (_two, second) = scene.attached("two", &conf);
    for family in [0, 1] {
        one.ping(&ip(&second, family)).unwrap();
        let gateway = first["ips"][family]["gateway"].as_str().unwrap();
        one.ping(gateway).unwrap();
        scene.node.ping(&ip(&first, family)).unwrap();
    }
}
