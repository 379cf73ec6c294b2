//! Names as odd and as long as they may be.

use lab::Netns;
use rstest::rstest;
use serde_json::json;

use crate::networks::{call, chain, succeeded, unmasqueraded_chain, used_node, with};

#[rstest]
#[case::dots("a..b.", "0.net..", "e.json")]
#[case::like_our_own_files("p.lock", "n.json", "eth0.tmp")]
#[case::punctuation("0_-.-_", "n-_.", "@@")]
#[case::a_digit("7", "8", "9")]
#[case::not_ascii("p", "n", "éth0")]
fn odd_names_are_only_names(#[case] id: &str, #[case] network: &str, #[case] ifname: &str) {
    let plugin = used_node();
    let _pod = plugin.pod("p");
    let conf = with(chain(&[]), "name", json!(network));
    let lasting = format!("/var/lib/cni/networks/{network}");
    let before = plugin
        .snapshot()
        .ignoring(lab::Ignore::new().host_local(&lasting));
    let on = |verb: &str| {
        let call = call(verb, &conf).container_id(id).ifname(ifname);
        plugin.run(&call.netns("/run/netns/p"))
    };
    let result = succeeded(on("ADD")).ok_json().unwrap();
    assert_eq!(result["interfaces"][2]["name"], ifname);
    let dir = format!("/var/lib/cni/headcni/{network}");
    assert_eq!(plugin.files(&dir), [format!("{id}@{ifname}.json")]);
    succeeded(on("DEL"));
    plugin.node.assert_unchanged(&before);

    succeeded(on("ADD"));
    succeeded(plugin.gc(&conf, &[]));
    plugin.node.assert_unchanged(&before);
}

#[test]
fn attachments_with_similar_names_are_kept_apart() {
    let plugin = used_node();
    let _pod = plugin.pod("p");
    let before = plugin.snapshot();
    // Neither bridge's masquerading nor portmap knows one interface of a container from another.
    let mut conf = with(unmasqueraded_chain(), "runtimeConfig", json!(null));
    let pairs = [
        ("p", "eth0"),
        ("p", "eth0.json"),
        ("p", "eth0.tmp"),
        ("p.json", "eth1"),
        ("p", "a@b"),
    ];
    let on = |verb, (id, ifname): (&str, &str)| {
        plugin.run(
            &call(verb, &conf)
                .container_id(id)
                .ifname(ifname)
                .netns("/run/netns/p"),
        )
    };
    for pair in pairs {
        succeeded(on("ADD", pair));
    }
    assert_eq!(plugin.leases().len(), pairs.len());
    succeeded(on("DEL", pairs[0]));
    assert_eq!(plugin.leases().len(), pairs.len() - 1);
    let valid = json!([{ "containerID": "p", "ifname": "eth0.json" }, { "containerID": "p", "ifname": "a@b" }]);
    conf["cni.dev/valid-attachments"] = valid;
    succeeded(plugin.run(&call("GC", &conf)));
    assert_eq!(plugin.leases().len(), 2);
    succeeded(plugin.gc(&conf, &[]));
    plugin.node.assert_unchanged(&before);
}

#[test]
fn an_id_of_two_hundred_letters_works() {
    let plugin = used_node();
    let pod = plugin.pod("p");
    let before = plugin.snapshot();
    let id = "x".repeat(200);
    for verb in ["ADD", "DEL"] {
        succeeded(plugin.run(&call(verb, &chain(&[])).pod(&pod).container_id(&id)));
    }
    plugin.node.assert_unchanged(&before);
}

#[rstest]
#[case::id("x".repeat(255), "net".to_owned())]
#[case::long_id("x".repeat(5000), "net".to_owned())]
#[case::network("p".to_owned(), "n".repeat(256))]
fn a_name_too_long_for_a_file_is_refused_and_deleted(#[case] id: String, #[case] network: String) {
    let plugin = used_node();
    let pod = plugin.pod("p");
    let before = plugin.snapshot();
    let conf = with(chain(&[]), "name", json!(network));
    let outcome = plugin.run(&call("ADD", &conf).pod(&pod).container_id(&id));
    let code = outcome.err_code().unwrap_or_else(|| panic!("{outcome:?}"));
    assert!([4, 5, 7].contains(&code), "{outcome:?}");
    assert!(outcome.err_msg().len() > 20, "{outcome:?}");
    assert_eq!(pod.links().unwrap(), [""; 0]);
    plugin.node.assert_unchanged(&before);
    if network.len() < 255 {
        // The runtime cleans up after the ADD that failed: there is nothing to clean up.
        succeeded(plugin.run(&call("DEL", &conf).pod(&pod).container_id(&id)));
    }
}
