//! Nodes with nftables, and what `nft` says about them.

use lab::{Netns as _, Node};
use net::Socket;
use net::ruleset::{self, Table};

pub(crate) fn socket(place: &impl lab::Netns) -> Socket {
    place.enter(Socket::netfilter).unwrap().unwrap()
}

/// A node with both of our tables.
pub(crate) fn node_with_tables() -> (Node, Socket) {
    let node = Node::new("n1").unwrap();
    install(&node);
    let socket = socket(&node);
    (node, socket)
}

pub(crate) fn install(node: &Node) {
    node.enter(|| ruleset::install(&Table::ALL, &[]))
        .unwrap()
        .unwrap();
}

/// Does a line of `nft`'s own language.
pub(crate) fn nft(node: &Node, line: &str) {
    node.run(["nft", line]).unwrap();
}

/// The elements of a set or map as `nft` words them, sorted.
pub(crate) fn listed(node: &Node, kind: &str, table: &str, name: &str) -> Vec<String> {
    let listing = node
        .run(["nft", "list", kind, "inet", table, name])
        .unwrap()
        .stdout;
    let Some((_, elements)) = listing.split_once("elements = {") else {
        return Vec::new();
    };
    let elements = elements.split('}').next().unwrap();
    let words = |element: &str| element.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut elements: Vec<String> = elements.split(',').map(words).collect();
    elements.sort();
    elements
}
