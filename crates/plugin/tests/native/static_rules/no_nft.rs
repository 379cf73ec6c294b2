//! A machine without the program `nft`.

use lab::Netns;

use crate::host_ports::{elements, mapping, publishing};
use crate::scene::{Scene, call, dual_stack, with};

/// Where a program can be that is looked for outside of `PATH`, too.
const PLACES: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/bin"];

/// The node without `nft`, until dropped.
struct Hidden<'s> {
    scene: &'s Scene,
    places: Vec<String>,
}

impl<'s> Hidden<'s> {
    fn new(scene: &'s Scene) -> Self {
        let mut hidden = Self {
            scene,
            places: Vec::new(),
        };
        for place in PLACES.map(|place| format!("{place}/nft")) {
            // Two of the places may be one, and a device is no program.
            let is_program = ["test", "-f", &place];
            if scene.node.attempt(is_program).unwrap().status.success() {
                let mount = ["mount", "--bind", "/dev/null", &place];
                scene.node.run(mount).unwrap();
                hidden.places.push(place);
            }
        }
        assert!(!hidden.places.is_empty());
        hidden
    }
}

impl Drop for Hidden<'_> {
    fn drop(&mut self) {
        for place in &self.places {
            // It ends with the node in any case.
            let _ = self.scene.node.attempt(["umount", place]);
        }
    }
}

#[test]
fn the_first_pod_is_refused_with_what_to_install_and_nothing_remains() {
    let scene = Scene::used(&dual_stack());
    scene.node.run(["nft", "flush", "ruleset"]).unwrap();
    let pod = scene.pod("pod");
    let before = scene.snapshot();
    let hidden = Hidden::new(&scene);
    let outcome = scene.attempt("ADD", &dual_stack(), &pod);
    let words = outcome.err_msg();
    assert!(
        words.contains("install the package nftables"),
        "{outcome:?}"
    );
    assert!(outcome.err_code().is_some(), "{outcome:?}");
    let status = scene.run(&call("STATUS", &dual_stack()));
    assert_eq!(status.err_code(), Some(50), "{status:?}");
    assert!(status.err_msg().contains("nftables"), "{status:?}");
    drop(hidden);
    scene.node.assert_unchanged(&before);
    assert_eq!(pod.links().unwrap(), Vec::<String>::new());

    // Installed since, it works, and nothing stands in the way.
    scene.run(&call("STATUS", &dual_stack())).ok().unwrap();
    scene.done("ADD", &dual_stack(), &pod);
}

#[test]
fn where_the_rules_are_there_it_is_not_needed() {
    let conf = publishing(dual_stack(), &[mapping("tcp", 8080, 80)]);
    let scene = Scene::used(&dual_stack());
    let hidden = Hidden::new(&scene);
    scene.run(&call("STATUS", &conf)).ok().unwrap();
    let (pod, result) = scene.attached("pod", &conf);
    let (other, _) = scene.attached("other", &dual_stack());
    other.ping(&crate::scene::ip(&result, 0)).unwrap();
    let checked = with(conf.clone(), "prevResult", result);
    scene.done("CHECK", &checked, &pod);
    scene.done("DEL", &conf, &pod);
    drop(hidden);
    assert_eq!(elements(&scene), Vec::<String>::new());
}

#[test]
fn a_path_without_it_is_enough_where_it_is_in_sbin() {
    let scene = Scene::new();
    let pod = scene.pod("pod");
    let call = call("ADD", &dual_stack()).pod(&pod);
    // What nsenter is found by comes from the test's own PATH.
    let bare = call.under(["/usr/bin/env", "PATH=/nonexistent"]);
    scene.run(&bare).ok().unwrap();
    assert!(scene.ruleset().contains("table inet headcni "));
}
