use rstest::rstest;
use serde_json::json;

use super::*;

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn node(id: u64, available: &[&str], approved: &[&str]) -> Node {
    let text = json!({
        "id": id,
        "nodeKey": format!("nodekey:{id}"),
        "machineKey": format!("mkey:{id}"),
        "availableRoutes": available,
        "approvedRoutes": approved,
        "subnetRoutes": approved,
    });
    serde_json::from_value(text).unwrap()
}

#[rstest]
#[case("nodekey:2", Some("mkey:2"), Some(2))]
#[case("nodekey:2", None, Some(2))]
#[case("nodekey:9", Some("mkey:2"), None)]
#[case("nodekey:9", None, None)]
#[case("", None, None)]
fn a_node_is_known_by_its_keys(
    #[case] node_key: &str,
    #[case] machine: Option<&str>,
    #[case] id: Option<u64>,
) {
    let mut nodes = vec![node(1, &[], &[]), node(2, &[], &[]), node(3, &[], &[])];
    nodes[2].node_key = String::new();
    let keys = Keys {
        node: node_key,
        machine,
    };
    let found = match own(&nodes, &keys) {
        Own::Found(node) => Some(node.id),
        Own::Absent => None,
        Own::Stranger(node) => panic!("node {} is a stranger", node.id),
    };
    assert_eq!(found, id);
}

#[test]
fn who_has_one_of_our_keys_only_is_a_stranger() {
    let nodes = [node(1, &[], &[])];
    let keys = Keys {
        node: "nodekey:1",
        machine: Some("mkey:7"),
    };
    assert_eq!(own(&nodes, &keys), Own::Stranger(&nodes[0]));
}

#[rstest]
#[case("10.244.1.0/24", 1)]
#[case("10.244.1.128/25", 1)]
#[case("10.0.0.0/8", 1)]
#[case("10.244.2.0/24", 0)]
#[case("0.0.0.0/0", 0)]
#[case("fd00:1::/64", 1)]
#[case("::/0", 0)]
fn others_may_not_have_what_is_ours(#[case] theirs: &str, #[case] count: usize) {
    let ours = nets(&["10.244.1.0/24", "fd00:1::/64"]);
    for nodes in [
        [node(1, &["10.244.1.0/24"], &[]), node(2, &[theirs], &[])],
        [node(1, &["10.244.1.0/24"], &[]), node(2, &[], &[theirs])],
        [
            node(1, &["10.244.1.0/24"], &[]),
            node(2, &[theirs], &[theirs]),
        ],
    ] {
        let found = overlaps(&nodes, Some(1), &ours);
        assert_eq!(found.len(), count, "{found:?}");
        assert!(found.iter().all(|overlap| overlap.node.id == 2));
    }
}

#[test]
fn who_is_not_in_the_list_overlaps_with_all() {
    let nodes = [node(1, &["10.244.1.0/24"], &[])];
    assert_eq!(overlaps(&nodes, None, &nets(&["10.244.1.0/24"])).len(), 1);
}

#[test]
fn each_network_stands_for_itself() {
    let node = node(
        1,
        &["10.1.0.0/24", "10.2.0.0/24"],
        &["10.2.0.0/24", "10.3.0.0/24"],
    );
    let prefixes = nets(&["10.1.0.0/24", "10.2.0.0/24", "10.3.0.0/24", "10.4.0.0/24"]);
    let told: Vec<_> = standing(&node, &prefixes)
        .iter()
        .map(|it| (it.is_advertised, it.is_approved, it.is_serving))
        .collect();
    assert_eq!(
        told,
        [
            (true, false, false),
            (true, true, true),
            (false, true, true),
            (false, false, false)
        ]
    );
}

#[test]
fn what_the_user_approved_stays() {
    let approved = nets(&["192.168.7.0/24", "10.244.1.0/24"]);
    let old = nets(&["10.244.1.0/24"]);
    let new = nets(&["10.244.9.0/24"]);
    assert_eq!(
        merged_approval(&approved, &old, &new),
        nets(&["10.244.9.0/24", "192.168.7.0/24"])
    );
    assert_eq!(
        merged_approval(&approved, &old, &old),
        nets(&["10.244.1.0/24", "192.168.7.0/24"])
    );
    assert_eq!(
        merged_approval(&approved, &old, &[]),
        nets(&["192.168.7.0/24"])
    );
}
