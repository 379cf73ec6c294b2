//! What the mesh asks of the node's network.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::{Desired, Observed};
use node_core::tailnet::{TAILNET, guarded_destinations};

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
    /// Addresses of members that nothing may go to by another way.
    pub members: Vec<Ipv4Addr>,
    /// Addresses of this node's pods that are in none of its networks: they must not lead away.
    pub outside: Vec<IpNet>,
    /// Whether links that the mesh's packets come by are tuned for them.
    pub tune_links: bool,
    /// Whether the link is one that our own tailscaled made: then it is switched on if it is off.
    pub is_ours: bool,
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
    /// What nothing may go to by another way, beside pods. Where tailscaled is in a namespace of its own, the
    /// same addresses are those of a host's own tailscaled, of another mesh perhaps.
    pub(super) fn guarded(&self) -> Vec<IpNet> {
        if self.is_apart() {
            return Vec::new();
        }
        guarded_destinations(&self.members)
    }

    /// Whether the link leads to another namespace, where the mesh's interface is.
    fn is_apart(&self) -> bool {
        self.via_ipv4.is_some() || self.via_ipv6.is_some()
    }

    /// Why other nodes can't be reached, and what to do.
    fn trouble(&self, observed: &Observed) -> Option<String> {
        let link = &self.link;
        let why = match observed.mesh_link(self) {
            Some(found) if found.is_up => return None,
            // The same pass switches it on.
            Some(_) if self.is_ours => return None,
            None if self.is_apart() => {
                format!("{link} is missing, and is made by the next look at the mesh (MeshJoined)")
            }
            None => format!("{link} is missing: tailscaled makes it when it starts (MeshJoined)"),
            Some(_) if self.is_apart() => {
                format!(
                    "{link} is off, and is switched on by the next look at the mesh (MeshJoined)"
                )
            }
            Some(_) => format!(
                "{link} is off: run \"ip link set {link} up\" on this node, and start tailscaled again, \
                 which does not put back what the link has lost"
            ),
        };
        Some(format!("other nodes can't be reached: {why}"))
    }

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

/// What is in place.
pub(super) struct Summary<'a>(pub(super) &'a Desired);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(desired) = self;
        write!(f, "{desired}")?;
        let Some(mesh) = &desired.mesh else {
            return Ok(());
        };
        let (link, count) = (&mesh.link, mesh.remotes.len());
        write!(
            f,
            ", and {count} networks of other nodes are led to by {link}"
        )?;
        let mut overlaps = desired.overlaps.iter();
        overlaps.try_for_each(|overlap| write!(f, "; {overlap}"))
    }
}

/// What a pass can't mend, and what to do.
pub(super) fn trouble(desired: &Desired, observed: &Observed) -> Option<String> {
    desired.mesh.as_ref()?.trouble(observed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use node_config::Networks;

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
