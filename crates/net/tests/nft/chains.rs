//! Chains of others, as they are found.

use lab::Node;
use net::nft::{self, HOOK_FORWARD, Policy, TableFamily};

use crate::support::{nft, socket};

#[test]
fn forward_chains_of_all_families_are_found_with_their_policies() {
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
