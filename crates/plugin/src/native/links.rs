//! Links of ours on the host, told by what is written on them.
//!
//! The kernel keeps a text with each link. Ours says which attachment it is for, so that a
//! garbage collection needs no other list.

use std::collections::BTreeSet;
use std::path::Path;

use cni::{Error, NetworkName, ValidAttachment};
use net::{Batch, Link, Socket};

use super::kernel::refused;

/// Whether the host has a link of this name.
pub(crate) fn is_there(name: &str) -> bool {
    // A socket to ask the kernel by takes longer.
    Path::new("/proc/sys/net/ipv4/conf").join(name).exists()
}

/// Deletes the links of a network whose attachments aren't valid.
pub(crate) fn delete_all_but(
    network: &NetworkName,
    valid: &[ValidAttachment],
) -> Result<(), Error> {
    let socket = Socket::route().map_err(refused)?;
    let valid: BTreeSet<(&str, &str)> = valid
        .iter()
        .map(|v| (v.container_id.as_str(), v.ifname.as_str()))
        .collect();
    let links = net::links(&socket).map_err(refused)?;
    let doomed: Vec<&Link> = links
        .iter()
        .filter(|link| {
            attachment_of(link, network.as_str())
                .is_some_and(|attachment| !valid.contains(&attachment))
        })
        .collect();
    if doomed.is_empty() {
        return Ok(());
    }
    // One by one they take 23 ms each; as a group, hardly longer than one.
    let mut batch = Batch::new();
    for link in &doomed {
        net::move_to_group(&mut batch, link.index, ruleset::DOOMED_GROUP);
    }
    socket.send(batch).map_err(refused)?;
    net::delete_group(&socket, ruleset::DOOMED_GROUP).map_err(refused)
}

/// The container and interface that a link of ours is for, if it is of this network.
fn attachment_of<'a>(link: &'a Link, network: &str) -> Option<(&'a str, &'a str)> {
    let labelled = state::link::read_alias(&link.name, &link.kind, &link.alias)?;
    (labelled.network == network).then_some((labelled.container, labelled.ifname))
}
