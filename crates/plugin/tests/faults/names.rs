//! Names as odd and as long as they may be.

use lab::Netns;
use rstest::rstest;
use serde_json::json;

use crate::scene::{Scene, call, chain, succeeded, unmasqueraded_chain, with};

#[rstest]
#[case::dots("a..b.", "0.net..", "e.json")]
#[case::like_our_own_files("p.lock", "n.json", "eth0.tmp")]
#[case::punctuation("0_-.-_", "n-_.", "@@")]
#[case::a_digit("7", "8", "9")]
#[case::not_ascii("p", "n", "éth0")]
fn odd_names_are_only_names(#[case] id: &str, #[case] network: &str, #[case] ifname: &str) {
    let scene = Scene::used();
    let _pod = scene.pod("p");
    let conf = with(chain(&[]), "name", json!(network));
    let lasting = format!("/var/lib/cni/networks/{network}");
    let before = scene
        .snapshot()
        .ignoring(lab::Ignore::new().host_local(&lasting));
    let on = |verb: &str| {
        let call = call(verb, &conf).container_id(id).ifname(ifname);
        scene.run(&call.netns("/run/netns/p"))
    };
    let result = succeeded(on("ADD")).ok_json().unwrap();
    assert_eq!(result["interfaces"][2]["name"], ifname);
    let dir = format!("/var/lib/cni/headcni/{network}");
    assert_eq!(scene.files(&dir), [format!("{id}@{ifname}.json")]);
    succeeded(on("DEL"));
    scene.node.assert_unchanged(&before);

    succeeded(on("ADD"));
    succeeded(scene.collect(&conf));
    scene.node.assert_unchanged(&before);
}

#[test]
fn attachments_with_similar_names_are_kept_apart() {
    let scene = Scene::used();
    let _pod = scene.pod("p");
    let before = scene.snapshot();
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
        scene.run(
            &call(verb, &conf)
                .container_id(id)
                .ifname(ifname)
                .netns("/run/netns/p"),
        )
    };
    for pair in pairs {
        succeeded(on("ADD", pair));
    }
    assert_eq!(scene.leases().len(), pairs.len());
    succeeded(on("DEL", pairs[0]));
    assert_eq!(scene.leases().len(), pairs.len() - 1);
    let valid = json!([{ "containerID": "p", "ifname": "eth0.json" }, { "containerID": "p", "ifname": "a@b" }]);
    conf["cni.dev/valid-attachments"] = valid;
    succeeded(scene.run(&call("GC", &conf)));
    assert_eq!(scene.leases().len(), 2);
    succeeded(scene.collect(&conf));
    scene.node.assert_unchanged(&before);
}

#[test]
fn an_id_of_two_hundred_letters_works() {
    let scene = Scene::used();
    let pod = scene.pod("p");
    let before = scene.snapshot();
    let id = "x".repeat(200);
    for verb in ["ADD", "DEL"] {
        succeeded(scene.run(&call(verb, &chain(&[])).pod(&pod).container_id(&id)));
    }
    scene.node.assert_unchanged(&before);
}

#[rstest]
#[case::id("x".repeat(255), "net".to_owned())]
#[case::long_id("x".repeat(5000), "net".to_owned())]
#[case::network("p".to_owned(), "n".repeat(256))]
fn a_name_too_long_for_a_file_is_refused_and_deleted(#[case] id: String, #[case] network: String) {
    let scene = Scene::used();
    let pod = scene.pod("p");
    let before = scene.snapshot();
    let conf = with(chain(&[]), "name", json!(network));
    let outcome = scene.run(&call("ADD", &conf).pod(&pod).container_id(&id));
    let code = outcome.err_code().unwrap_or_else(|| panic!("{outcome:?}"));
    assert!([4, 5, 7].contains(&code), "{outcome:?}");
    assert!(outcome.err_msg().len() > 20, "{outcome:?}");
    assert_eq!(pod.links().unwrap(), [""; 0]);
    scene.node.assert_unchanged(&before);
    if network.len() < 255 {
        // The runtime cleans up after the ADD that failed: there is nothing to clean up.
        succeeded(scene.run(&call("DEL", &conf).pod(&pod).container_id(&id)));
    }
}
