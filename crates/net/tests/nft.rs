//! nftables in a real kernel: what netlink writes, `nft` must list, and the other way round.
//!
//! Every test has a node of its own; the machine's own ruleset is never touched.

#![expect(
    clippy::unwrap_used,
    reason = "clippy exempts only functions marked as tests"
)]

use ipnet::IpNet;
use lab::{Netns as _, Node};
use net::nft::{
    self, Element, Existing, HOOK_FORWARD, Interval, NftError, Policy, Set, TableFamily,
    Transaction, concatenate, element, elements, generation, intervals, is_outdated,
};
use net::{Errno, Socket};

const PORTS: Set<'static> = of_t("ports");
const PAIRS: Set<'static> = of_t("pairs");
const NETS: Set<'static> = of_t("nets");

const fn of_t(name: &'static str) -> Set<'static> {
    Set { table: "t", name }
}

fn socket(node: &Node) -> Socket {
    node.enter(Socket::netfilter).unwrap().unwrap()
}

/// Runs one line of `nft`.
fn nft(node: &Node, line: &str) {
    node.run(["nft", line]).unwrap();
}

/// The elements of a set or map as `nft` lists them, sorted.
fn listed(node: &Node, kind: &str, table: &str, name: &str) -> Vec<String> {
    let listing = node
        .run(["nft", "list", kind, "inet", table, name])
        .unwrap()
        .stdout;
    let Some((_, elements)) = listing.split_once("elements = {") else {
        return Vec::new();
    };
    let elements = elements.split('}').next().unwrap();
    let normalize = |element: &str| element.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut elements: Vec<String> = elements.split(',').map(normalize).collect();
    elements.sort();
    elements
}

fn node() -> (Node, Socket) {
    let node = Node::new("n1").unwrap();
    for line in [
        "add table inet t",
        "add map inet t ports { type inet_proto . inet_service : ipv4_addr . inet_service; }",
        "add set inet t pairs { type ipv6_addr . ipv6_addr; }",
        "add set inet t nets { type ipv4_addr; flags interval; }",
        "add set inet t nets6 { type ipv6_addr; flags interval; }",
    ] {
        nft(&node, line);
    }
    let socket = socket(&node);
    (node, socket)
}

fn port(number: u16, last: u8) -> Element {
    Element::entry(
        concatenate(&[&[6], &number.to_be_bytes()]),
        concatenate(&[&[10, 0, 0, last], &80u16.to_be_bytes()]),
    )
}

fn network(text: &str) -> Vec<Element> {
    Interval::from(text.parse::<IpNet>().unwrap()).elements()
}

fn add(socket: &Socket, set: Set<'_>, elements: &[Element]) -> Result<(), net::NetError> {
    let mut transaction = Transaction::new();
    transaction.add(set, elements, Existing::Reject);
    transaction.commit(socket)
}

#[test]
fn nft_lists_elements_that_netlink_added() {
    let (node, socket) = node();
    let pair = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let mut transaction = Transaction::new();
    transaction.add(PORTS, &[port(8080, 1), port(443, 2)], Existing::Reject);
    let pair = Element::member(concatenate(&[&pair, &pair]));
    transaction.add(PAIRS, &[pair], Existing::Reject);
    transaction.add(NETS, &network("10.0.0.0/8"), Existing::Reject);
    transaction.commit(&socket).unwrap();

    let ports = ["tcp . 443 : 10.0.0.2 . 80", "tcp . 8080 : 10.0.0.1 . 80"];
    assert_eq!(listed(&node, "map", "t", "ports"), ports);
    assert_eq!(listed(&node, "set", "t", "pairs"), ["fd00::1 . fd00::1"]);
    assert_eq!(listed(&node, "set", "t", "nets"), ["10.0.0.0/8"]);
}

#[test]
fn netlink_lists_elements_that_nft_added() {
    let (node, socket) = node();
    nft(
        &node,
        "add element inet t ports { tcp . 8080 : 10.0.0.1 . 80 }",
    );
    nft(
        &node,
        "add element inet t nets { 10.0.0.0/8, 10.0.0.0-10.255.255.255, 11.0.0.0-11.0.0.4 }",
    );
    assert_eq!(elements(&socket, PORTS).unwrap(), [port(8080, 1)]);
    let found = element(&socket, PORTS, &port(8080, 9).key).unwrap();
    assert_eq!(found, Some(port(8080, 1)));
    let found: Vec<String> = intervals(&socket, NETS)
        .unwrap()
        .iter()
        .map(|one| format!("{}-{}", one.first, one.last))
        .collect();
    assert_eq!(found, ["10.0.0.0-10.255.255.255", "11.0.0.0-11.0.0.4"]);
}

#[test]
fn a_missing_element_differs_from_a_missing_set_or_table() {
    let (_node, socket) = node();
    let key = port(1, 1).key;
    assert_eq!(element(&socket, PORTS, &key).unwrap(), None);
    assert_eq!(elements(&socket, PORTS).unwrap(), []);
    for missing in [
        of_t("none"),
        Set {
            table: "none",
            ..PORTS
        },
    ] {
        assert!(
            element(&socket, missing, &key)
                .unwrap_err()
                .is(Errno::NOENT)
        );
        assert!(elements(&socket, missing).unwrap_err().is(Errno::NOENT));
        let error = add(&socket, missing, &[port(1, 1)]).unwrap_err();
        assert!(error.is(Errno::NOENT), "{error}");
        let start = format!(
            "add to set {} of nftables table inet {}: ",
            missing.name, missing.table
        );
        assert!(error.to_string().starts_with(&start), "{error}");
    }
}

#[test]
fn existing_elements_are_rejected_or_accepted_on_request() {
    let (node, socket) = node();
    add(&socket, PORTS, &[port(80, 1)]).unwrap();
    let error = add(&socket, PORTS, &[port(80, 1)]).unwrap_err();
    assert!(error.is(Errno::EXIST), "{error}");

    let accept = |element: Element| {
        let mut transaction = Transaction::new();
        transaction.add(PORTS, &[port(81, 1), element], Existing::AcceptSame);
        transaction.commit(&socket)
    };
    let error = accept(port(80, 2)).unwrap_err();
    assert!(error.is(Errno::EXIST) || error.is(Errno::BUSY), "{error}");
    assert_eq!(
        listed(&node, "map", "t", "ports"),
        ["tcp . 80 : 10.0.0.1 . 80"],
        "the transaction is atomic"
    );
    accept(port(80, 1)).unwrap();
    assert_eq!(elements(&socket, PORTS).unwrap().len(), 2);
}

#[test]
fn a_rejected_transaction_changes_nothing_and_leaves_no_replies() {
    let (_node, socket) = node();
    add(&socket, PORTS, &[port(80, 1)]).unwrap();
    for _ in 0..3 {
        // Several errors: two missing sets and a missing element.
        let mut transaction = Transaction::new();
        transaction.delete(PORTS, &[port(80, 1)]);
        transaction.add(of_t("none"), &[port(80, 1)], Existing::Reject);
        transaction.add(PORTS, &[port(81, 1)], Existing::Reject);
        transaction.delete(PORTS, &[port(99, 1)]);
        transaction.delete(of_t("neither"), &[port(99, 1)]);
        let error = transaction.commit(&socket).unwrap_err();
        assert!(
            error.to_string().starts_with("add to set none of"),
            "{error}"
        );
        assert_eq!(elements(&socket, PORTS).unwrap(), [port(80, 1)]);
        let found = element(&socket, PORTS, &port(80, 1).key).unwrap();
        assert_eq!(found, Some(port(80, 1)));
    }
}

#[test]
fn a_transaction_of_another_generation_is_rejected() {
    let (_node, socket) = node();
    let before = generation(&socket).unwrap();
    add(&socket, PORTS, &[port(80, 1)]).unwrap();
    let now = generation(&socket).unwrap();
    assert!(now > before);
    for (at, is_current) in [(before, false), (now, true), (now, false)] {
        let mut transaction = Transaction::at(at);
        transaction.add(PORTS, &[port(81, 1)], Existing::AcceptSame);
        let outcome = transaction.commit(&socket);
        if is_current {
            outcome.unwrap();
        } else {
            assert!(is_outdated(&outcome.unwrap_err()));
        }
    }
}

#[test]
fn an_empty_transaction_is_not_sent() {
    let (_node, socket) = node();
    let before = generation(&socket).unwrap();
    let transaction = Transaction::at(before + 1000);
    assert!(transaction.is_empty());
    transaction.commit(&socket).unwrap();
    let mut transaction = Transaction::new();
    transaction.add(PORTS, &[], Existing::Reject);
    transaction.commit(&socket).unwrap();
    assert_eq!(generation(&socket).unwrap(), before);
}

#[test]
fn thousands_of_elements_are_added_listed_and_deleted() {
    let (_node, socket) = node();
    let many: Vec<Element> = (1..=5000).map(|number| port(number, 7)).collect();
    add(&socket, PORTS, &many).unwrap();
    let mut found = elements(&socket, PORTS).unwrap();
    found.sort_by(|a, b| a.key.cmp(&b.key));
    assert_eq!(found, many);

    // The errors of all elements are more than the socket holds.
    let error = add(&socket, PORTS, &many).unwrap_err();
    assert!(error.is(Errno::EXIST), "{error}");
    assert_eq!(elements(&socket, PORTS).unwrap().len(), 5000);

    let mut transaction = Transaction::new();
    transaction.delete(PORTS, &many);
    transaction.commit(&socket).unwrap();
    assert_eq!(elements(&socket, PORTS).unwrap(), []);
}

#[test]
fn intervals_may_reach_both_ends_of_the_address_space() {
    let (node, socket) = node();
    for networks in [
        &["0.0.0.0/0"][..],
        &["0.0.0.0/8", "255.0.0.0/8"],
        &["10.0.0.0/24", "10.0.1.0/24"],
        &["255.255.255.255/32"],
    ] {
        let all: Vec<Element> = networks.iter().flat_map(|text| network(text)).collect();
        add(&socket, NETS, &all).unwrap();
        let wanted: Vec<Interval> = networks
            .iter()
            .map(|text| text.parse::<IpNet>().unwrap().into())
            .collect();
        assert_eq!(intervals(&socket, NETS).unwrap(), wanted);
        let shown = listed(&node, "set", "t", "nets").join(" ");
        for network in networks {
            let network = network.trim_end_matches("/32");
            assert!(
                shown.contains(network) || *network == *"0.0.0.0/0",
                "{shown}"
            );
        }
        let mut transaction = Transaction::new();
        transaction.delete(NETS, &all);
        transaction.commit(&socket).unwrap();
    }
}

#[test]
fn forward_chains_of_all_families_are_listed_with_their_policies() {
    let node = Node::new("n1").unwrap();
    for (family, table, policy) in [
        ("ip", "filter", "drop"),
        ("ip6", "filter", "accept"),
        ("inet", "mine", "drop"),
    ] {
        nft(&node, &format!("add table {family} {table}"));
        let hook = format!("{{ type filter hook forward priority 7; policy {policy}; }}");
        nft(&node, &format!("add chain {family} {table} FORWARD {hook}"));
        nft(&node, &format!("add chain {family} {table} other"));
    }
    let mut found: Vec<(TableFamily, String, Policy)> = nft::chains(&socket(&node))
        .unwrap()
        .into_iter()
        .filter(|chain| chain.hook == Some((HOOK_FORWARD, 7)))
        .map(|chain| (chain.family, chain.table, chain.policy))
        .collect();
    found.sort_by_key(|(family, ..)| *family);
    let filter = || "filter".to_owned();
    let expected = [
        (TableFamily::Inet, "mine".to_owned(), Policy::Drop),
        (TableFamily::Ip, filter(), Policy::Drop),
        (TableFamily::Ip6, filter(), Policy::Accept),
    ];
    assert_eq!(found, expected);
    assert_eq!(nft::chains(&socket(&node)).unwrap().len(), 6);
}

#[test]
fn a_chain_is_found_by_its_name() {
    let node = Node::new("n1").unwrap();
    nft(&node, "add table inet mine");
    nft(&node, "add chain inet mine plain");
    let socket = socket(&node);
    let chain = nft::chain(&socket, "mine", "plain").unwrap().unwrap();
    assert_eq!((chain.name.as_str(), chain.hook), ("plain", None));
    assert_eq!(nft::chain(&socket, "mine", "none").unwrap(), None);
    assert_eq!(nft::chain(&socket, "none", "plain").unwrap(), None);
}

#[test]
fn a_script_is_atomic_and_its_error_has_the_output_of_nft() {
    let node = Node::new("n1").unwrap();
    let run = |script: &str| node.enter(|| nft::run(script)).unwrap();
    run("create table inet a").unwrap();
    assert!(matches!(run("create table inet a"), Err(NftError::Exists)));
    let error = run("add chain inet a b\nadd rule inet a b nonsense\n").unwrap_err();
    assert!(
        error.to_string().contains("nonsense") && matches!(error, NftError::Rejected { .. }),
        "{error}"
    );
    let error = run("add chain inet a b\ndelete table inet none\n").unwrap_err();
    assert!(matches!(error, NftError::Rejected { .. }), "{error}");
    let listing = node.run(["nft", "list", "table", "inet", "a"]).unwrap();
    assert_eq!(listing.stdout, "table inet a {\n}\n");
}
