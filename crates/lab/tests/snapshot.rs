//! A snapshot shows what a plugin leaves behind.

use anyhow::Result;
use lab::{Ignore, Netns, Node};

/// Adds one object of each kind, with names that the test looks for.
fn litter(node: &Node) -> Result<()> {
    let commands = [
        "ip link add left0 type bridge",
        "ip address add 10.9.8.7/24 dev left0",
        "ip link set left0 up",
        "ip route add unreachable 10.66.0.0/16",
        "ip -6 rule add to fd66::/16 lookup 66",
        "ip neighbour add 10.9.8.6 lladdr 02:00:00:00:00:66 dev left0 nud permanent",
        "iptables -t nat -N LEFT-CHAIN",
        "ip6tables -A FORWARD -s fd66::/16 -j DROP",
        "nft add table inet left",
        "nft add set inet left marks { type mark; elements = { 6, 66 }; }",
    ];
    for command in commands {
        node.run(command.split(' '))?;
    }
    node.write("/var/lib/lab/deep/left", "lease")
}

#[test]
fn a_difference_names_every_kind_of_object() {
    let node = Node::new("n").unwrap();
    let before = node.snapshot(&["/var/lib/lab"]).unwrap();
    node.assert_unchanged(&before);
    litter(&node).unwrap();
    let after = node.snapshot(&["/var/lib/lab"]).unwrap();
    assert_ne!(before, after);
    let difference = before.difference(&after);
    for line in [
        "Links\n  + left0\n",
        "  + 10.9.8.7/24 dev left0\n",
        "  + unreachable 10.66.0.0/16",
        "  + -6 32765: from all to fd66::/16 lookup 66\n",
        "  + -4 10.9.8.6 dev left0 lladdr 02:00:00:00:00:66 PERMANENT\n",
        "  + iptables -t nat -N LEFT-CHAIN\n",
        "  + ip6tables -t filter -A FORWARD -s fd66::/16 -j DROP\n",
        "  + table inet left\n",
        "  + table inet left set marks: elements = { 0x00000006, 0x00000042 }\n",
        "  + /var/lib/lab/deep/left 0644 \"lease\"\n",
    ] {
        assert!(difference.contains(line), "no {line:?} in:\n{difference}");
    }
    let back = after.difference(&before);
    assert!(back.contains("Links\n  - left0\n"), "{back}");
}

#[test]
fn ignored_objects_are_not_in_the_difference() {
    let node = Node::new("n").unwrap();
    let before = node.snapshot(&["/var/lib/lab"]).unwrap();
    let ignore = Ignore::new()
        .link("left0")
        .chain("LEFT-CHAIN")
        .nft_table("inet left");
    let before = before
        .ignoring(ignore)
        .ignoring(Ignore::new().path("/var/lib/lab/deep"));
    litter(&node).unwrap();
    node.run(["ip", "route", "del", "unreachable", "10.66.0.0/16"])
        .unwrap();
    node.run(["ip", "-6", "rule", "del", "to", "fd66::/16"])
        .unwrap();
    node.run(["ip6tables", "-F", "FORWARD"]).unwrap();
    node.assert_unchanged(&before);
}

#[test]
#[should_panic(expected = "node n has changed:\nLinks\n  + left0\n")]
fn an_assertion_on_a_changed_node_shows_the_difference() {
    let node = Node::new("n").unwrap();
    let before = node.snapshot(&[]).unwrap();
    litter(&node).unwrap();
    node.assert_unchanged(&before);
}
