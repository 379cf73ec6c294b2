//! What a list of nodes tells about one of them. Nothing here asks anybody.

use ipnet::IpNet;

use super::node::Node;

/// The keys by which a node knows itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys<'a> {
    /// Its own, as in `nodekey:…`.
    pub node: &'a str,
    /// Its machine's, as in `mkey:…`, where that is known.
    pub machine: Option<&'a str>,
}

/// Who a node is in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own<'a> {
    /// This one.
    Found(&'a Node),
    /// Nobody: it never joined, or was deleted.
    Absent,
    /// One with our node key has another machine's key. It must not be taken for us.
    Stranger(&'a Node),
}

/// Looks for a node by its keys; never by its name, which others may have as well.
pub fn own<'a>(nodes: &'a [Node], keys: &Keys<'_>) -> Own<'a> {
    // Nobody is known by no key: the server has rows that have none.
    if keys.node.is_empty() {
        return Own::Absent;
    }
    let Some(node) = nodes.iter().find(|node| node.node_key == keys.node) else {
        return Own::Absent;
    };
    match keys.machine {
        Some(machine) if machine != node.machine_key => Own::Stranger(node),
        _ => Own::Found(node),
    }
}

/// Another node that has, or wants, what is ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap<'a> {
    /// The other.
    pub node: &'a Node,
    /// Our network.
    pub ours: IpNet,
    /// The other's.
    pub theirs: IpNet,
}

/// Who else advertises, or is approved for, something that has addresses of `prefixes` in it.
pub fn overlaps<'a>(nodes: &'a [Node], own: Option<u64>, prefixes: &[IpNet]) -> Vec<Overlap<'a>> {
    let mut found = Vec::new();
    for node in nodes.iter().filter(|node| Some(node.id) != own) {
        let mut theirs: Vec<IpNet> = node
            .available
            .iter()
            .chain(&node.approved)
            .copied()
            .collect();
        theirs.sort();
        theirs.dedup();
        for theirs in theirs {
            // An exit node offers the whole world, and takes nothing from anybody.
            if theirs.prefix_len() == 0 {
                continue;
            }
            let ours = prefixes
                .iter()
                .filter(|ours| ours.contains(&theirs) || theirs.contains(*ours));
            found.extend(ours.map(|ours| Overlap {
                node,
                ours: *ours,
                theirs,
            }));
        }
    }
    found
}

/// How far a network has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The network.
    pub prefix: IpNet,
    /// Whether the node offers it.
    pub is_advertised: bool,
    /// Whether somebody approved it.
    pub is_approved: bool,
    /// Whether others are told to send there. Only a list of all nodes tells.
    pub is_serving: bool,
}

/// How far each of these networks has come at a node.
pub fn standing(node: &Node, prefixes: &[IpNet]) -> Vec<Standing> {
    let of = |prefix: &IpNet| Standing {
        prefix: *prefix,
        is_advertised: node.available.contains(prefix),
        is_approved: node.approved.contains(prefix),
        is_serving: node.serving.contains(prefix),
    };
    prefixes.iter().map(of).collect()
}

/// The whole list to approve: what is approved, without those that were ours and are not any more,
/// and with those that are. What somebody else approved stays. Sorted.
pub fn merged_approval(approved: &[IpNet], ours_old: &[IpNet], ours_new: &[IpNet]) -> Vec<IpNet> {
    let is_kept = |prefix: &&IpNet| !ours_old.contains(prefix);
    let kept = approved.iter().filter(is_kept);
    let mut merged: Vec<IpNet> = kept.chain(ours_new).copied().collect();
    merged.sort();
    merged.dedup();
    merged
}

#[cfg(test)]
mod tests;
