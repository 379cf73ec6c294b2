//! A machine without the program `nft`.

use lab::Netns;
use lab::scenario::PluginNode;

use crate::host_ports::{elements, mapping, publishing};
use crate::networks::{call, dual_stack, plugin_node, used_node, with};

/// Where a program can be that is looked for outside of `PATH`, too.
const PLACES: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/bin"];

/// The node without `nft`, until dropped.
struct Hidden<'s> {
    plugin: &'s PluginNode,
    places: Vec<String>,
}

impl<'s> Hidden<'s> {
    fn new(plugin: &'s PluginNode) -> Self {
        let mut hidden = Self {
            plugin,
            places: Vec::new(),
        };
        for place in PLACES.map(|place| format!("{place}/nft")) {
            // Two of the places may be one, and a device is no program.
            let is_program = ["test", "-f", &place];
            if plugin.node.attempt(is_program).unwrap().status.success() {
                let mount = ["mount", "--bind", "/dev/null", &place];
                plugin.node.run(mount).unwrap();
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
            let _ = self.plugin.node.attempt(["umount", place]);
        }
    }
}

#[test]
fn the_first_pod_is_refused_with_what_to_install_and_nothing_remains() {
    let plugin = used_node(&dual_stack());
    plugin.node.run(["nft", "flush", "ruleset"]).unwrap();
    let pod = plugin.pod("pod");
    let before = plugin.snapshot();
    let hidden = Hidden::new(&plugin);
    let outcome = plugin.attempt("ADD", &dual_stack(), &pod);
    let words = outcome.err_msg();
    assert!(
        words.contains("install the package nftables"),
        "{outcome:?}"
    );
    assert!(outcome.err_code().is_some(), "{outcome:?}");
    let status = plugin.run(&call("STATUS", &dual_stack()));
    assert_eq!(status.err_code(), Some(50), "{status:?}");
    assert!(status.err_msg().contains("nftables"), "{status:?}");
    drop(hidden);
    plugin.node.assert_unchanged(&before);
    assert_eq!(pod.links().unwrap(), Vec::<String>::new());

    // Installed since, it works, and nothing stands in the way.
    plugin.run(&call("STATUS", &dual_stack())).ok().unwrap();
    plugin.succeed("ADD", &dual_stack(), &pod);
}

#[test]
fn where_the_rules_are_there_it_is_not_needed() {
    let conf = publishing(dual_stack(), &[mapping("tcp", 8080, 80)]);
    let plugin = used_node(&dual_stack());
    let hidden = Hidden::new(&plugin);
    plugin.run(&call("STATUS", &conf)).ok().unwrap();
    let (pod, result) = plugin.attached("pod", &conf);
    let (other, _) = plugin.attached("other", &dual_stack());
    other.ping(&crate::networks::ip(&result, 0)).unwrap();
    let checked = with(conf.clone(), "prevResult", result);
    plugin.succeed("CHECK", &checked, &pod);
    plugin.succeed("DEL", &conf, &pod);
    drop(hidden);
    assert_eq!(elements(&plugin), Vec::<String>::new());
}

#[test]
fn a_path_without_it_is_enough_where_it_is_in_sbin() {
    let plugin = plugin_node();
    let pod = plugin.pod("pod");
    let call = call("ADD", &dual_stack()).pod(&pod);
    // What nsenter is found by comes from the test's own PATH.
    let bare = call.under(["/usr/bin/env", "PATH=/nonexistent"]);
    plugin.run(&bare).ok().unwrap();
    assert!(plugin.ruleset().contains("table inet headcni "));
}
