//! UDP GRO forwarding on the uplinks, as Tailscale recommends. It speeds up nodes that forward the
//! mesh's UDP packets: to a tailscaled in its own netns, or from the mesh to its underlay.
//! <https://tailscale.com/kb/1320/performance-best-practices>

use net::ethtool::Switch;
use net::{Link, RouteKind, TABLE_MAIN};

use crate::{Action, Desired, HostnetRecord, Observed};

/// `rx-gro-list` has precedence, and TUN interfaces do not support it.
const TUNED: [(&str, Switch); 2] = [
    ("rx-udp-gro-forwarding", Switch::On),
    ("rx-gro-list", Switch::Off),
];

/// The links of default routes: packets from other nodes arrive there.
pub(crate) fn uplinks<'a>(desired: &Desired, observed: &'a Observed) -> Vec<&'a Link> {
    let is_default_by = |index: u32| {
        observed.routes.iter().any(|route| {
            let is_by = matches!(route.kind, RouteKind::Via { link, .. } if link == index);
            is_by && route.table == TABLE_MAIN && route.dst.prefix_len() == 0
        })
    };
    let mesh_ifaces = &desired.contents.mesh_ifaces;
    let is_underlay = |link: &&Link| !mesh_ifaces.contains(&link.name);
    let links = observed.links.iter().filter(is_underlay);
    links.filter(|link| is_default_by(link.index)).collect()
}

pub(super) fn plan(
    desired: &Desired,
    observed: &Observed,
    record: &HostnetRecord,
    actions: &mut Vec<Action>,
) {
    let mut set_unless = |link: &Link, feature: &str, switch: Switch| {
        // Not every link has the feature.
        let features = observed.features.get(&link.index);
        let found = features.and_then(|features| features.is_wanted(feature));
        if found.is_some_and(|is_on| Switch::from(is_on) != switch) {
            actions.push(Action::SetFeature {
                link: link.index,
                name: link.name.clone(),
                feature: feature.to_owned(),
                switch,
            });
        }
    };
    if desired.has_tuned_links() {
        for link in uplinks(desired, observed) {
            for (feature, switch) in TUNED {
                set_unless(link, feature, switch);
            }
        }
        return;
    }
    for link in &observed.links {
        for (feature, is_on) in record.features.get(&link.name).into_iter().flatten() {
            set_unless(link, feature, Switch::from(*is_on));
        }
    }
}
