//! What makes the mesh's packets, which are UDP, cheaper to pass on: the kernel joins them on the
//! links that they come by, as it does for TCP anyway. It counts where this node forwards them: to a
//! tailscaled in a namespace of its own, or from the mesh to its underlay. Tailscale recommends it.
//! <https://tailscale.com/kb/1320/performance-best-practices>

use net::ethtool::Switch;
use net::{Link, RouteKind, TABLE_MAIN};

use crate::{Action, Desired, Memory, Observed};

/// `rx-gro-list` is another way to join them, which has precedence and which no TUN takes.
const TUNED: [(&str, Switch); 2] = [
    ("rx-udp-gro-forwarding", Switch::On),
    ("rx-gro-list", Switch::Off),
];

/// The links that default routes lead by: what comes from other nodes comes by them.
pub(crate) fn uplinks<'a>(desired: &Desired, observed: &'a Observed) -> Vec<&'a Link> {
    let is_default_by = |index: u32| {
        observed.routes.iter().any(|route| {
            let is_by = matches!(route.kind, RouteKind::Via { link, .. } if link == index);
            is_by && route.table == TABLE_MAIN && route.dst.prefix_len() == 0
        })
    };
    let inside = &desired.contents.mesh_ifaces;
    let is_outside = |link: &&Link| !inside.contains(&link.name);
    let links = observed.links.iter().filter(is_outside);
    links.filter(|link| is_default_by(link.index)).collect()
}

pub(super) fn plan(
    desired: &Desired,
    observed: &Observed,
    memory: &Memory,
    actions: &mut Vec<Action>,
) {
    let mut set_unless = |link: &Link, feature: &str, switch: Switch| {
        // A link that doesn't have it can't be helped.
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
        for (feature, is_on) in memory.features.get(&link.name).into_iter().flatten() {
            set_unless(link, feature, Switch::from(*is_on));
        }
    }
}
