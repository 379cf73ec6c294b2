//! Our links on the host, found by their alias.

use std::collections::BTreeSet;
use std::path::Path;

use cni::{Error, NetworkName, ValidAttachment};
use net::{Batch, Link, Socket};

use super::apply::kernel_error;

/// Whether the host has a link of this name.
pub(super) fn exists(name: &str) -> bool {
    // Faster than a netlink socket.
    Path::new("/proc/sys/net/ipv4/conf").join(name).exists()
}

/// Deletes the links of a network whose attachments aren't valid.
pub(super) fn delete_stale(network: &NetworkName, valid: &[ValidAttachment]) -> Result<(), Error> {
    let socket = Socket::route().map_err(kernel_error)?;
    let valid: BTreeSet<(&str, &str)> = valid
        .iter()
        .map(|v| (v.container_id.as_str(), v.ifname.as_str()))
        .collect();
    let links = net::links(&socket).map_err(kernel_error)?;
    let stale: Vec<&Link> = links
        .iter()
        .filter(|link| {
            attachment_of(link, network.as_str())
                .is_some_and(|attachment| !valid.contains(&attachment))
        })
        .collect();
    if stale.is_empty() {
        return Ok(());
    }
    // One by one they take 23 ms each, as a group hardly longer than one.
    let mut batch = Batch::new();
    for link in &stale {
        net::move_to_group(&mut batch, link.index, ruleset::DOOMED_GROUP);
    }
    socket.send(batch).map_err(kernel_error)?;
    net::delete_group(&socket, ruleset::DOOMED_GROUP).map_err(kernel_error)
}

/// Container and interface of a link, if it is ours and of this network.
fn attachment_of<'a>(link: &'a Link, network: &str) -> Option<(&'a str, &'a str)> {
    let owner = attachment::link::parse_alias(&link.name, &link.kind, &link.alias)?;
    (owner.network == network).then_some((owner.container, owner.ifname))
}
