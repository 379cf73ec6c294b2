//! A subnet file that is absent, unreadable, torn or contradictory is refused, and changes nothing.

use lab::{Netns, Node};
use rstest::rstest;
use serde_json::{Value, json};

use crate::calls::*;

const FILE: &str = api::paths::SUBNET_FILE;

/// An ADD on this node must fail, with words about the file, and leave no trace.
#[track_caller]
fn assert_refused(node: &Node, conf: &Value, words: &[&str]) {
    let pod = node.pod("p").unwrap();
    let before = node.snapshot(&["/var/lib/cni", "/etc/cni"]).unwrap();
    let outcome = ask("ADD", conf, &pod);
    let message = refused(&outcome, 7);
    for word in words {
        assert!(message.contains(word), "no {word:?} in {message:?}");
    }
    assert!(pod.links().unwrap().is_empty());
    node.assert_unchanged(&before);
}

fn plain() -> Value {
    delegating("1.1.0", json!({}))
}

#[test]
fn an_absent_file_is_named_with_the_variable() {
    let node = Node::new("n1").unwrap();
    assert_refused(&node, &plain(), &[FILE, "HEADCNI_SUBNET"]);
    let member = json!({"type": "headcni", "delegate": {}});
    let chain = chaining("1.1.0", &[member], json!({"subnetFile": "/etc/mine.env"}));
    let node = Node::new("n2").unwrap();
    assert_refused(&node, &chain, &["/etc/mine.env", "HEADCNI_SUBNET"]);
}

#[test]
fn an_unreadable_file_is_an_error_and_no_absence() {
    let node = Node::new("n1").unwrap();
    node.run(["mkdir", "-p", FILE]).unwrap();
    assert_refused(&node, &plain(), &[FILE]);
    let outcome = run(&node, &call("STATUS", &plain()));
    assert!(outcome.err_msg().contains(FILE), "{outcome:?}");
}

/// The file as it is when its writer died after each byte: never half believed.
#[test]
fn a_torn_file_is_refused_wherever_it_is_torn() {
    let node = Node::new("n1").unwrap();
    let pod = node.pod("p").unwrap();
    // The last value can be cut and still be read: `tru` can't, and the whole is the whole.
    let whole = SUBNET_ENV.trim_end();
    for end in (0..whole.len()).step_by(3) {
        node.write(FILE, &whole[..end]).unwrap();
        let outcome = run(&node, &call("STATUS", &plain()));
        assert!(
            !outcome.status.success(),
            "{:?} was believed",
            &whole[..end]
        );
    }
    node.write(FILE, &whole[..whole.len() / 2]).unwrap();
    let before = node.snapshot(DIRS).unwrap();
    refused(&ask("ADD", &plain(), &pod), 7);
    node.assert_unchanged(&before);
}

#[rstest]
#[case::no_network("HEADCNI_NETWORK=10.244.0.0/16\n", "", &["HEADCNI_NETWORK"])]
#[case::no_subnet("HEADCNI_SUBNET=10.244.1.0/24\n", "", &["HEADCNI_SUBNET"])]
#[case::no_mtu("HEADCNI_MTU=1380\n", "", &["HEADCNI_MTU"])]
#[case::no_ipmasq("HEADCNI_IPMASQ=true\n", "", &["HEADCNI_IPMASQ"])]
#[case::no_key("HEADCNI_MTU=1380", "1380", &["1380", "line 3"])]
#[case::empty("HEADCNI_MTU=1380", "HEADCNI_MTU=", &["HEADCNI_MTU", "line 3"])]
#[case::twice("HEADCNI_MTU=1380", "HEADCNI_MTU=1380\nHEADCNI_MTU=1400", &["HEADCNI_MTU", "1380", "1400"])]
#[case::no_cidr("10.244.1.0/24", "10.244.1.0", &["HEADCNI_SUBNET", "10.244.1.0"])]
#[case::no_address("10.244.1.0/24", "10.244.1.999/24", &["HEADCNI_SUBNET", "10.244.1.999"])]
#[case::elsewhere("10.244.1.0/24", "10.9.1.0/24", &["HEADCNI_SUBNET", "10.9.1.0/24", "HEADCNI_NETWORK"])]
#[case::larger_than_the_network("10.244.1.0/24", "10.0.0.0/8", &["HEADCNI_SUBNET", "10.0.0.0/8"])]
#[case::overlapping("10.244.1.0/24", "10.244.1.0/24,10.244.1.128/25", &["HEADCNI_SUBNET", "10.244.1.128/25"])]
#[case::too_small("10.244.1.0/24", "10.244.1.0/31", &["HEADCNI_SUBNET", "10.244.1.0/31"])]
#[case::broadcast_as_gateway("10.244.1.0/24", "10.244.1.255/24", &["HEADCNI_SUBNET", "10.244.1.255"])]
#[case::other_family("10.244.1.0/24", "fd00::/64", &["HEADCNI_SUBNET", "fd00::/64"])]
#[case::mtu_of_nothing("MTU=1380", "MTU=0", &["HEADCNI_MTU", "0"])]
#[case::mtu_of_letters("MTU=1380", "MTU=big", &["HEADCNI_MTU", "big"])]
#[case::ipmasq_of_letters("IPMASQ=true", "IPMASQ=maybe", &["HEADCNI_IPMASQ", "maybe"])]
#[case::half_of_ipv6("HEADCNI_MTU", "HEADCNI_IPV6_SUBNET=fd00::/64\nHEADCNI_MTU", &["HEADCNI_IPV6_NETWORK"])]
fn nonsense_is_refused_by_key(#[case] good: &str, #[case] bad: &str, #[case] words: &[&str]) {
    let text = SUBNET_ENV.replace(good, bad);
    assert_ne!(text, SUBNET_ENV);
    let words: Vec<_> = words.iter().copied().chain([FILE]).collect();
    assert_refused(&node_with(&text), &plain(), &words);
}

#[test]
fn a_variable_that_contradicts_the_file_is_refused_by_name() {
    let node = node();
    let pod = node.pod("p").unwrap();
    let before = node.snapshot(DIRS).unwrap();
    let call = call("ADD", &plain()).pod(&pod);
    let outcome = run(&node, &call.env("HEADCNI_SUBNET", "10.9.1.0/24"));
    let message = refused(&outcome, 7);
    for word in [
        "HEADCNI_SUBNET=10.9.1.0/24",
        "environment",
        "HEADCNI_NETWORK",
    ] {
        assert!(message.contains(word), "{message}");
    }
    node.assert_unchanged(&before);
}

#[test]
fn a_variable_that_is_no_text_is_refused_by_name() {
    use std::os::unix::ffi::OsStrExt;

    let node = node();
    let pod = node.pod("p").unwrap();
    let before = node.snapshot(DIRS).unwrap();
    let bad = std::ffi::OsStr::from_bytes(b"10.244.1.0/24\xff");
    let call = call("ADD", &plain()).pod(&pod);
    let outcome = run(&node, &call.env("HEADCNI_SUBNET", bad));
    assert!(!outcome.status.success(), "{outcome:?}");
    assert!(outcome.err_msg().contains("HEADCNI_SUBNET"), "{outcome:?}");
    node.assert_unchanged(&before);
}
