//! The mesh link, which tailscaled creates, and source addresses on a bridge: a reconcile may wait for
//! them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use net::Link;
use net::monitor::Change;
use ruleset::LINK_GROUP;

use crate::Desired;

/// Set by the reconcile, read by the monitor.
#[derive(Clone, Debug, Default)]
pub(crate) struct WatchedNames(Arc<Mutex<Names>>);

#[derive(Debug, Default, PartialEq, Eq)]
struct Names {
    link: Option<String>,
    sources: Vec<IpAddr>,
}

impl WatchedNames {
    pub(super) fn set(&self, desired: &Desired) {
        let mesh = desired.mesh.as_ref();
        // A reconcile adds those on `lo` itself.
        let on_bridge = |source: &&IpAddr| !desired.gateways.contains(source);
        let sources = desired.sources.iter().filter(on_bridge);
        *self.names() = Names {
            link: mesh.map(|mesh| mesh.link.clone()),
            sources: mesh.map_or(Vec::new(), |_| sources.copied().collect()),
        };
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        // No panic can leave a partial change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
pub(super) struct MeshLinkMonitor {
    /// Name, index and whether it was up, at the last event.
    last: Option<(String, u32, bool)>,
    /// Names by index, without pod links.
    names: HashMap<u32, String>,
}

impl MeshLinkMonitor {
    pub(super) fn new(links: &[Link]) -> Self {
        let others = links.iter().filter(|link| link.group != LINK_GROUP);
        Self {
            last: None,
            names: others.map(|link| (link.index, link.name.clone())).collect(),
        }
    }

    /// Records a change, and returns whether a watched link or address came or went. The kernel repeats
    /// link events without a change.
    pub(super) fn handles(&mut self, change: &Change, watched: &WatchedNames) -> bool {
        let is_watched = |name: &String| watched.names().link.as_ref() == Some(name);
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
            } if is_watched(name) => {
                let now = Some((name.clone(), *index, *is_up));
                let is_new = self.last != now;
                self.last = now;
                is_new
            }
            Change::LinkGone { name, .. } if is_watched(name) => {
                self.last = None;
                true
            }
            // With its last address a link loses all IPv4 routes, without route events. tailscaled
            // removes its addresses whenever it has to log in.
            Change::AddressGone { link } => self.names.get(link).is_some_and(is_watched),
            Change::Address { address } => watched.names().sources.contains(address),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MeshRoutes;
    use node_config::{Config, Mode};

    fn link(name: &str, index: u32, is_up: bool) -> Change {
        Change::Link {
            index,
            name: name.to_owned(),
            group: 0,
            is_up,
        }
    }

    fn watched(mode: Mode, mesh: Option<&MeshRoutes>) -> WatchedNames {
        let mut config = Config::default();
        config.cni.mode = mode;
        let local = ["10.244.3.0/24".parse().unwrap()];
        let watched = WatchedNames::default();
        watched.set(&Desired::new(&config, &local, &[], mesh).unwrap());
        watched
    }

    fn mesh() -> MeshRoutes {
        MeshRoutes {
            link: "headcni01".to_owned(),
            ..MeshRoutes::default()
        }
    }

    #[test]
    fn the_mesh_link_triggers_when_it_appears_vanishes_or_changes_state() {
        let watched = watched(Mode::Native, Some(&mesh()));
        let mut monitor = MeshLinkMonitor::default();
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
            assert_eq!(monitor.handles(&change, &watched), expected, "{change:?}");
        }
    }

    #[test]
    fn an_address_removed_from_the_mesh_link_triggers() {
        let watched = watched(Mode::Native, Some(&mesh()));
        let mut monitor = MeshLinkMonitor::default();
        let gone = |link| Change::AddressGone { link };
        assert!(!monitor.handles(&gone(7), &watched));
        monitor.handles(&link("eth0", 2, true), &watched);
        monitor.handles(&link("headcni01", 7, true), &watched);
        assert!(monitor.handles(&gone(7), &watched));
        assert!(!monitor.handles(&gone(2), &watched));
        let link_gone = Change::LinkGone {
            name: "headcni01".to_owned(),
            group: 0,
        };
        monitor.handles(&link_gone, &watched);
        assert!(!monitor.handles(&gone(7), &watched));
    }

    #[test]
    fn a_source_address_on_a_bridge_triggers() {
        let gateway = |text: &str| Change::Address {
            address: text.parse().unwrap(),
        };
        let triggers = |watched: &WatchedNames, text| {
            MeshLinkMonitor::default().handles(&gateway(text), watched)
        };
        let on_bridge = watched(Mode::Bridge, Some(&mesh()));
        assert!(triggers(&on_bridge, "10.244.3.1"));
        assert!(!triggers(&on_bridge, "10.244.3.2"));
        assert!(!triggers(
            &watched(Mode::Native, Some(&mesh())),
            "10.244.3.1"
        ));
        assert!(!triggers(&watched(Mode::Bridge, None), "10.244.3.1"));
    }
}
