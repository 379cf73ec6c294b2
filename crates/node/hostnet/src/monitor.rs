//! Triggers reconciles on netlink events.
//!
//! Changes to foreign objects are ignored, so a busy node, where chains and links come and go all the
//! time, costs nothing.

mod watched;

use std::collections::HashSet;
use std::io::{self, PipeReader};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use net::monitor::{Change, Monitor, TablePart, Woken, wait};
use net::{Link, NetError, PROTO_HEADCNI, Socket};
use ruleset::{DOOMED_GROUP, LINK_GROUP, PORTS_TABLE, TABLE};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::firewall::FOREIGN_CHAINS;
use super::{Desired, LO_INDEX};
use node_core::routing::NETNS_TABLE;

use watched::{MeshLinkMonitor, WatchedNames};

/// Before a broken monitor is restarted.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Notified when a reconcile is due.
#[derive(Clone, Debug, Default)]
pub struct Signals {
    /// The host network may have changed.
    pub hostnet: Arc<Notify>,
    /// A foreign firewall may have changed.
    pub firewall: Arc<Notify>,
    /// The netns of our tailscaled may have changed.
    pub mesh: Arc<Notify>,
    watched: WatchedNames,
}

impl Signals {
    /// Call it before a reconcile, so that the arrival of a missing link or address triggers the next.
    pub fn set_desired(&self, desired: &Desired) {
        self.watched.set(desired);
    }
}

/// The controllers that a change affects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Affected {
    hostnet: bool,
    firewall: bool,
    mesh: bool,
}

const NONE: Affected = Affected {
    hostnet: false,
    firewall: false,
    mesh: false,
};
const HOSTNET: Affected = Affected {
    hostnet: true,
    ..NONE
};
const FIREWALL: Affected = Affected {
    firewall: true,
    ..NONE
};
const MESH: Affected = Affected { mesh: true, ..NONE };
const RULES: Affected = Affected {
    hostnet: true,
    mesh: true,
    ..NONE
};
const ALL: Affected = Affected {
    hostnet: true,
    firewall: true,
    mesh: true,
};

fn affected(change: &Change) -> Affected {
    match change {
        // Its hostPorts may be orphans.
        Change::LinkGone { group, .. } if [LINK_GROUP, DOOMED_GROUP].contains(group) => HOSTNET,
        Change::Link {
            index: LO_INDEX,
            is_up: true,
            ..
        }
        | Change::AddressGone { link: LO_INDEX }
        | Change::RouteGone {
            protocol: PROTO_HEADCNI,
        }
        | Change::Forwarding { is_on: false } => HOSTNET,
        Change::RuleGone {
            protocol: PROTO_HEADCNI,
        } => RULES,
        Change::Table { table, .. } if table == NETNS_TABLE => MESH,
        Change::Table { table, .. } if table == TABLE || table == PORTS_TABLE => HOSTNET,
        Change::Table { part, .. } => match part {
            TablePart::Itself | TablePart::BaseChain => FIREWALL,
            TablePart::Chain(name) | TablePart::Rule(name)
                if FOREIGN_CHAINS.contains(&name.as_str()) =>
            {
                FIREWALL
            }
            _ => NONE,
        },
        Change::Overrun => ALL,
        _ => NONE,
    }
}

/// Runs until `shutdown`. After an error it restarts, as if everything had changed.
pub async fn monitor(signals: Signals, shutdown: CancellationToken) {
    let (stop, stopping) = match io::pipe() {
        Ok(pipe) => pipe,
        Err(error) => {
            tracing::error!(%error, "failed to create a pipe; network changes are not monitored");
            return shutdown.cancelled().await;
        }
    };
    // Blocks while nothing happens.
    let listening = tokio::task::spawn_blocking(move || listen(&signals, &stop));
    shutdown.cancelled().await;
    drop(stopping);
    // Fails only by a panic, which is logged.
    let _ = listening.await;
}

/// Listens until the other end of `stop` is closed.
fn listen(signals: &Signals, stop: &PipeReader) {
    loop {
        let Err(error) = try_listen(signals, stop) else {
            return;
        };
        tracing::warn!(%error, "failed to monitor network changes; retrying");
        if !matches!(
            wait(&[], stop.as_fd(), Some(RETRY_DELAY)),
            Ok(Woken::Timeout)
        ) {
            return;
        }
    }
}

fn try_listen(signals: &Signals, stop: &PipeReader) -> Result<(), NetError> {
    let (mut route, mut netfilter) = (Monitor::route()?, Monitor::netfilter()?);
    let links = net::links(&Socket::route()?)?;
    let (mut flaps, mut mesh) = (LinkFlaps::of(&links), MeshLinkMonitor::new(&links));
    // For changes before the sockets were open.
    notify(signals, ALL);
    while wait(&[&route, &netfilter], stop.as_fd(), None)? != Woken::Stop {
        let mut all = NONE;
        let mut handle = |change: Change| {
            let one = affected(&change);
            let is_mesh_link = mesh.handles(&change, &signals.watched);
            all.hostnet |= one.hostnet | flaps.is_up_again(&change) | is_mesh_link;
            all.firewall |= one.firewall;
            all.mesh |= one.mesh | is_mesh_link;
        };
        // If there is more, the next wait returns at once.
        route.fetch(&mut handle)?;
        netfilter.fetch(&mut handle)?;
        notify(signals, all);
    }
    Ok(())
}

/// Pod links that went down. One that comes up again has lost its routes; the first time it comes up, the
/// plugin adds them.
#[derive(Default)]
struct LinkFlaps {
    up: HashSet<String>,
    down: HashSet<String>,
}

impl LinkFlaps {
    fn of(links: &[Link]) -> Self {
        let is_up = |link: &&Link| link.group == LINK_GROUP && link.is_up;
        let up = links.iter().filter(is_up).map(|link| link.name.clone());
        Self {
            up: up.collect(),
            down: HashSet::new(),
        }
    }

    /// Records a change, and returns whether a link is up again.
    fn is_up_again(&mut self, change: &Change) -> bool {
        match change {
            Change::Link {
                name,
                group: LINK_GROUP,
                is_up,
                ..
            } => {
                if !is_up {
                    if self.up.remove(name) {
                        self.down.insert(name.clone());
                    }
                    return false;
                }
                self.up.insert(name.clone());
                self.down.remove(name)
            }
            Change::LinkGone { name, .. } => {
                self.up.remove(name);
                self.down.remove(name);
                false
            }
            _ => false,
        }
    }
}

fn notify(signals: &Signals, affected: Affected) {
    if affected.hostnet {
        signals.hostnet.notify_one();
    }
    if affected.firewall {
        signals.firewall.notify_one();
    }
    if affected.mesh {
        signals.mesh.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn link(index: u32, group: u32, is_up: bool) -> Change {
        Change::Link {
            index,
            name: "x".to_owned(),
            group,
            is_up,
        }
    }

    fn table(table: &str, part: TablePart) -> Change {
        Change::Table {
            table: table.to_owned(),
            part,
        }
    }

    fn rule(chain: &str) -> TablePart {
        TablePart::Rule(chain.to_owned())
    }

    #[test]
    fn a_link_is_up_again_only_if_it_was_up_before() {
        let (on, off) = (link(9, LINK_GROUP, true), link(9, LINK_GROUP, false));
        let mut flaps = LinkFlaps::default();
        let handle = |flaps: &mut LinkFlaps, changes: &[&Change]| -> Vec<bool> {
            changes.iter().map(|one| flaps.is_up_again(one)).collect()
        };
        assert_eq!(
            handle(&mut flaps, &[&off, &off, &on, &on]),
            [false; 4],
            "new link"
        );
        assert_eq!(
            handle(&mut flaps, &[&off, &off, &on, &on]),
            [false, false, true, false]
        );
        let gone = Change::LinkGone {
            name: "x".to_owned(),
            group: LINK_GROUP,
        };
        assert_eq!(
            handle(&mut flaps, &[&off, &gone, &off, &on]),
            [false; 4],
            "another link"
        );
        assert_eq!(
            handle(&mut flaps, &[&link(9, 0, false), &link(9, 0, true)]),
            [false; 2]
        );
    }

    #[rstest]
    #[case(link(9, LINK_GROUP, true), NONE)]
    #[case(link(9, LINK_GROUP, false), NONE)]
    #[case(link(9, 0, true), NONE)]
    #[case(link(LO_INDEX, 0, true), HOSTNET)]
    #[case(Change::AddressGone { link: LO_INDEX }, HOSTNET)]
    #[case(Change::AddressGone { link: 2 }, NONE)]
    #[case(Change::RouteGone { protocol: 104 }, HOSTNET)]
    #[case(Change::RouteGone { protocol: 2 }, NONE)]
    #[case(Change::RuleGone { protocol: 104 }, RULES)]
    #[case(Change::RuleGone { protocol: 3 }, NONE)]
    #[case(Change::Forwarding { is_on: false }, HOSTNET)]
    #[case(Change::Forwarding { is_on: true }, NONE)]
    #[case(table("headcni", TablePart::Set), HOSTNET)]
    #[case(table("headcni-ports", rule("output")), HOSTNET)]
    #[case(table("filter", TablePart::BaseChain), FIREWALL)]
    #[case(table("firewalld", TablePart::Itself), FIREWALL)]
    #[case(table("filter", rule("FORWARD")), FIREWALL)]
    #[case(table("filter", rule("DOCKER-USER")), FIREWALL)]
    #[case(table("nat", rule("KUBE-SERVICES")), NONE)]
    #[case(table("nat", TablePart::Chain("KUBE-SVC-X".to_owned())), NONE)]
    #[case(table("kube-proxy", TablePart::Set), NONE)]
    #[case(table("headcni-mesh", TablePart::Itself), MESH)]
    #[case(table("headcni-mesh", rule("postrouting")), MESH)]
    #[case(Change::Overrun, ALL)]
    fn only_relevant_changes_trigger_a_reconcile(
        #[case] change: Change,
        #[case] expected: Affected,
    ) {
        assert_eq!(affected(&change), expected);
    }
}
