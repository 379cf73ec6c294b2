//! What the mesh asks of the node's network.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::{Desired, Observed};
use crate::mesh::apart::TAILNET;

/// The way to other nodes' pods.
///
/// That there is none means that there is to be no mesh, and what was made for it is taken away. While
/// tailscaled is down or Headscale can't be asked, give what was known last: then nothing leaks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mesh {
    /// The link that leads there: tailscaled's, or a veth to the namespace that it is in. It may be
    /// missing.
    pub link: String,
    /// The address of that veth's other end; none where the link is tailscaled's own.
    pub via_ipv4: Option<Ipv4Addr>,
    /// The same for IPv6.
    pub via_ipv6: Option<Ipv6Addr>,
    /// Networks of other nodes' pods, as far as their word counts.
    pub remotes: Vec<IpNet>,
    /// Parts of them that lead nowhere: the mesh would send packets for them to somebody else.
    pub stolen: Vec<IpNet>,
    /// Addresses of this node's pods that are in none of its networks: they must not lead away.
    pub outside: Vec<IpNet>,
    /// Whether links that the mesh's packets come by are tuned for them.
    pub tune_links: bool,
}

/// A network of another node that gets no route, though somebody said that it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// The other node's network.
    pub remote: IpNet,
    /// What it overlaps: a network of this node, or of the mesh's members.
    pub with: IpNet,
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { remote, with } = self;
        write!(f, "{remote} gets no route: it overlaps {with}")
    }
}

impl Mesh {
    /// The same with those remote networks only that can have a route, and what overlaps. Others have
    /// judged them by then; but a route to this node's own pods must never lead away, whoever erred.
    pub(super) fn judged(&self, local: &[IpNet]) -> (Self, Vec<Overlap>) {
        let is_ipv4 = |net: &IpNet| net.addr().is_ipv4();
        let mut overlaps = Vec::new();
        let mut remotes: Vec<IpNet> = self.remotes.iter().map(IpNet::trunc).collect();
        remotes.sort_unstable();
        remotes.dedup();
        remotes.retain(|remote| {
            let mut taken = local.iter().chain(&TAILNET);
            let with = taken.find(|net| net.contains(remote) || remote.contains(*net));
            overlaps.extend(with.map(|with| Overlap {
                remote: *remote,
                with: *with,
            }));
            // Nobody here has an address to reach another family from.
            with.is_none() && local.iter().any(|net| is_ipv4(net) == is_ipv4(remote))
        });
        let judged = Self {
            remotes,
            ..self.clone()
        };
        (judged, overlaps)
    }
}

/// What is in place, and what of the mesh is not.
pub(super) struct Summary<'a>(pub(super) &'a Desired, pub(super) &'a Observed);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(desired, observed) = self;
        write!(f, "{desired}")?;
        let Some(mesh) = &desired.mesh else {
            return Ok(());
        };
        let (link, count) = (&mesh.link, mesh.remotes.len());
        match observed.mesh_link(mesh) {
            Some(found) if found.is_up => {
                write!(
                    f,
                    ", and {count} networks of other nodes are led to by {link}"
                )?;
            }
            Some(_) => write!(f, ", but other nodes can't be reached: {link} is off")?,
            None => write!(f, ", but other nodes can't be reached: {link} is missing")?,
        }
        let mut overlaps = desired.overlaps.iter();
        overlaps.try_for_each(|overlap| write!(f, "; {overlap}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Networks;

    fn networks(text: &str) -> Vec<IpNet> {
        text.parse::<Networks>().unwrap().0
    }

    #[test]
    fn what_overlaps_this_node_or_the_mesh_itself_gets_no_route() {
        let remotes = "10.244.4.0/24,10.244.3.0/24,10.244.3.128/25,10.0.0.0/8,0.0.0.0/0,\
                       100.64.7.0/24,fd00:4::/64,10.244.2.0/24";
        let mesh = Mesh {
            remotes: networks(remotes),
            ..Mesh::default()
        };
        let (judged, overlaps) = mesh.judged(&networks("10.244.3.0/24"));
        assert_eq!(judged.remotes, networks("10.244.2.0/24,10.244.4.0/24"));
        let overlaps: Vec<String> = overlaps.iter().map(Overlap::to_string).collect();
        let expected = [
            "0.0.0.0/0 gets no route: it overlaps 10.244.3.0/24",
            "10.0.0.0/8 gets no route: it overlaps 10.244.3.0/24",
            "10.244.3.0/24 gets no route: it overlaps 10.244.3.0/24",
            "10.244.3.128/25 gets no route: it overlaps 10.244.3.0/24",
            "100.64.7.0/24 gets no route: it overlaps 100.64.0.0/10",
        ];
        assert_eq!(overlaps, expected);
    }
}
