//! What passes wait for: the mesh's link, which tailscaled makes and others may switch, and the
//! addresses that this node sends from, where a bridge has them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use net::Link;
use net::monitor::Change;
use ruleset::LINK_GROUP;

use crate::Desired;

/// What passes wait for. Told by whoever makes them, heard by whoever watches.
#[derive(Clone, Debug, Default)]
pub(crate) struct Awaited(Arc<Mutex<Names>>);

#[derive(Debug, Default, PartialEq, Eq)]
struct Names {
    link: Option<String>,
    sources: Vec<IpAddr>,
}

impl Awaited {
    /// From now on it is this that passes wait for.
    pub(super) fn set(&self, desired: &Desired) {
        let mesh = desired.mesh.as_ref();
        // Those on `lo` are put there by passes.
        let on_bridge = |source: &&IpAddr| !desired.gateways.contains(source);
        let sources = desired.sources.iter().filter(on_bridge);
        *self.names() = Names {
            link: mesh.map(|mesh| mesh.link.clone()),
            sources: mesh.map_or(Vec::new(), |_| sources.copied().collect()),
        };
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        // There is no half-done change that a panic could have left.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How the mesh's link was when it was told of last.
#[derive(Debug, Default)]
pub(super) struct MeshLink {
    /// Its name and number, and whether it was on.
    last: Option<(String, u32, bool)>,
    /// The names of links that are no pods', by their numbers.
    names: HashMap<u32, String>,
}

impl MeshLink {
    /// With the links that are there.
    pub(super) fn among(links: &[Link]) -> Self {
        let others = links.iter().filter(|link| link.group != LINK_GROUP);
        Self {
            last: None,
            names: others.map(|link| (link.index, link.name.clone())).collect(),
        }
    }

    /// Takes note of a change; whether something has come or gone that passes wait for. Links tell of
    /// themselves also when it is of no matter.
    pub(super) fn concerns(&mut self, change: &Change, awaited: &Awaited) -> bool {
        let is_awaited = |name: &String| awaited.names().link.as_ref() == Some(name);
        match change {
            Change::Link {
                index, name, group, ..
            } if *group != LINK_GROUP => {
                self.names.insert(*index, name.clone());
            }
            Change::LinkGone { name, .. } => self.names.retain(|_, known| known != name),
            _ => {}
        }
        match change {
            Change::Link {
                index, name, is_up, ..
            } if is_awaited(name) => {
                let now = Some((name.clone(), *index, *is_up));
                let is_new = self.last != now;
                self.last = now;
                is_new
            }
            Change::LinkGone { name, .. } if is_awaited(name) => {
                self.last = None;
                true
            }
            // With its last address a link loses all routes of IPv4, and nobody is told of them.
            // tailscaled takes them away whenever it has to log in.
            Change::AddressGone { link } => self.names.get(link).is_some_and(is_awaited),
            Change::Address { address } => awaited.names().sources.contains(address),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mesh;
    use node_config::{Config, Mode};

    fn link(name: &str, index: u32, is_up: bool) -> Change {
        Change::Link {
            index,
            name: name.to_owned(),
            group: 0,
            is_up,
        }
    }

    fn awaited(mode: Mode, mesh: Option<&Mesh>) -> Awaited {
        let mut config = Config::default();
        config.cni.mode = mode;
        let local = ["10.244.3.0/24".parse().unwrap()];
        let awaited = Awaited::default();
        awaited.set(&Desired::new(&config, &local, &[], mesh).unwrap());
        awaited
    }

    fn mesh() -> Mesh {
        Mesh {
            link: "headcni01".to_owned(),
            ..Mesh::default()
        }
    }

    #[test]
    fn the_mesh_s_link_is_told_when_it_comes_goes_or_is_switched() {
        let awaited = awaited(Mode::Native, Some(&mesh()));
        let mut seen = MeshLink::default();
        let gone = Change::LinkGone {
            name: "headcni01".to_owned(),
            group: 0,
        };
        for (change, expected) in [
            (link("eth0", 2, true), false),
            (link("headcni01", 7, false), true),
            (link("headcni01", 7, true), true),
            (link("headcni01", 7, true), false),
            (link("headcni01", 7, false), true),
            (link("headcni01", 7, true), true),
            (gone, true),
            (link("headcni01", 9, true), true),
        ] {
            assert_eq!(seen.concerns(&change, &awaited), expected, "{change:?}");
        }
    }

    #[test]
    fn an_address_that_the_mesh_s_link_loses_counts() {
        let awaited = awaited(Mode::Native, Some(&mesh()));
        let mut seen = MeshLink::default();
        let gone = |link| Change::AddressGone { link };
        assert!(!seen.concerns(&gone(7), &awaited));
        seen.concerns(&link("eth0", 2, true), &awaited);
        seen.concerns(&link("headcni01", 7, true), &awaited);
        assert!(seen.concerns(&gone(7), &awaited));
        assert!(!seen.concerns(&gone(2), &awaited));
        let link_gone = Change::LinkGone {
            name: "headcni01".to_owned(),
            group: 0,
        };
        seen.concerns(&link_gone, &awaited);
        assert!(!seen.concerns(&gone(7), &awaited));
    }

    #[test]
    fn an_address_counts_where_a_bridge_is_to_have_it() {
        let gateway = |text: &str| Change::Address {
            address: text.parse().unwrap(),
        };
        let told = |awaited: &Awaited, text| MeshLink::default().concerns(&gateway(text), awaited);
        let on_bridge = awaited(Mode::Bridge, Some(&mesh()));
        assert!(told(&on_bridge, "10.244.3.1"));
        assert!(!told(&on_bridge, "10.244.3.2"));
        assert!(!told(&awaited(Mode::Native, Some(&mesh())), "10.244.3.1"));
        assert!(!told(&awaited(Mode::Bridge, None), "10.244.3.1"));
    }
}
