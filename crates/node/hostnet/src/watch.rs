//! Tells when a pass is due: the kernel says what has changed, and what of it matters is decided
//! here.
//!
//! Changes that others make to their own things are let pass, so that a busy node, where chains and
//! links come and go all the time, costs nothing.

mod awaited;

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

use super::firewall::CHAINS_OF_OTHERS;
use super::{Desired, LO_INDEX};
use node_core::routing::NETNS_TABLE;

use awaited::{Awaited, MeshLink};

/// How long to wait before a watch that broke is begun anew.
const PAUSE: Duration = Duration::from_secs(1);

/// Who is told.
#[derive(Clone, Debug, Default)]
pub struct Signals {
    /// Something of the network that pods share may have changed.
    pub network: Arc<Notify>,
    /// A firewall of somebody else may have changed.
    pub firewall: Arc<Notify>,
    /// Something of the network that our tailscaled may have for itself.
    pub mesh: Arc<Notify>,
    awaited: Awaited,
}

impl Signals {
    /// Says what passes go by from now on, before the first of them is made: what they miss of it is
    /// told as soon as it is there.
    pub fn wait_for(&self, desired: &Desired) {
        self.awaited.set(desired);
    }
}

/// What a change matters to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Concern {
    network: bool,
    firewall: bool,
    mesh: bool,
}

const NOBODY: Concern = Concern {
    network: false,
    firewall: false,
    mesh: false,
};
const NETWORK: Concern = Concern {
    network: true,
    ..NOBODY
};
const FIREWALL: Concern = Concern {
    firewall: true,
    ..NOBODY
};
const MESH: Concern = Concern {
    mesh: true,
    ..NOBODY
};
const RULES: Concern = Concern {
    network: true,
    mesh: true,
    ..NOBODY
};
const ALL: Concern = Concern {
    network: true,
    firewall: true,
    mesh: true,
};

fn concern(change: &Change) -> Concern {
    match change {
        // Its pod may have left hostPorts behind.
        Change::LinkGone { group, .. } if [LINK_GROUP, DOOMED_GROUP].contains(group) => NETWORK,
        Change::Link {
            index: LO_INDEX,
            is_up: true,
            ..
        }
        | Change::AddressGone { link: LO_INDEX }
        | Change::RouteGone {
            protocol: PROTO_HEADCNI,
        }
        | Change::Forwarding { is_on: false } => NETWORK,
        Change::RuleGone {
            protocol: PROTO_HEADCNI,
        } => RULES,
        Change::Table { table, .. } if table == NETNS_TABLE => MESH,
        Change::Table { table, .. } if table == TABLE || table == PORTS_TABLE => NETWORK,
        Change::Table { part, .. } => match part {
            TablePart::Itself | TablePart::BaseChain => FIREWALL,
            TablePart::Chain(name) | TablePart::Rule(name)
                if CHAINS_OF_OTHERS.contains(&name.as_str()) =>
            {
                FIREWALL
            }
            _ => NOBODY,
        },
        Change::Overrun => ALL,
        _ => NOBODY,
    }
}

/// Tells until it is told to end. A watch that breaks is begun anew, as if anything had changed.
pub async fn watch(signals: Signals, end: CancellationToken) {
    let (stop, stopping) = match io::pipe() {
        Ok(pipe) => pipe,
        Err(error) => {
            tracing::error!(%error, "changes of the network are not told: no pipe to be had");
            return end.cancelled().await;
        }
    };
    // It blocks for as long as nothing happens, so it has a thread of its own.
    let listening = tokio::task::spawn_blocking(move || listen(&signals, &stop));
    end.cancelled().await;
    drop(stopping);
    // It can only fail by a panic, which has been told by then.
    let _ = listening.await;
}

/// Listens until the other end of `stop` is closed.
fn listen(signals: &Signals, stop: &PipeReader) {
    loop {
        let Err(error) = try_listen(signals, stop) else {
            return;
        };
        tracing::warn!(%error, "changes of the network are not told; trying again");
        if !matches!(wait(&[], stop.as_fd(), Some(PAUSE)), Ok(Woken::Timeout)) {
            return;
        }
    }
}

fn try_listen(signals: &Signals, stop: &PipeReader) -> Result<(), NetError> {
    let (mut route, mut netfilter) = (Monitor::route()?, Monitor::netfilter()?);
    let links = net::links(&Socket::route()?)?;
    let (mut flaps, mut mesh) = (Flaps::of(&links), MeshLink::among(&links));
    // Whatever happened before the sockets were there.
    tell(signals, ALL);
    while wait(&[&route, &netfilter], stop.as_fd(), None)? != Woken::Stop {
        let mut all = NOBODY;
        let mut gather = |change: Change| {
            let one = concern(&change);
            let is_of_link = mesh.concerns(&change, &signals.awaited);
            all.network |= one.network | flaps.is_back(&change) | is_of_link;
            all.firewall |= one.firewall;
            all.mesh |= one.mesh | is_of_link;
        };
        // If there is more than that, the next wait ends at once.
        route.fetch(&mut gather)?;
        netfilter.fetch(&mut gather)?;
        tell(signals, all);
    }
    Ok(())
}

/// Links to pods that were switched off. One that is switched on again has lost its routes; one that
/// is switched on for the first time is its plugin's business, and no reason for a pass.
#[derive(Default)]
struct Flaps {
    up: HashSet<String>,
    down: HashSet<String>,
}

impl Flaps {
    fn of(links: &[Link]) -> Self {
        let is_up = |link: &&Link| link.group == LINK_GROUP && link.is_up;
        let up = links.iter().filter(is_up).map(|link| link.name.clone());
        Self {
            up: up.collect(),
            down: HashSet::new(),
        }
    }

    /// Takes note of a change; whether a link is back.
    fn is_back(&mut self, change: &Change) -> bool {
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

fn tell(signals: &Signals, concern: Concern) {
    if concern.network {
        signals.network.notify_one();
    }
    if concern.firewall {
        signals.firewall.notify_one();
    }
    if concern.mesh {
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
    fn a_link_is_back_if_it_was_there_before() {
        let (on, off) = (link(9, LINK_GROUP, true), link(9, LINK_GROUP, false));
        let mut flaps = Flaps::default();
        let told = |flaps: &mut Flaps, changes: &[&Change]| -> Vec<bool> {
            changes.iter().map(|one| flaps.is_back(one)).collect()
        };
        assert_eq!(
            told(&mut flaps, &[&off, &off, &on, &on]),
            [false; 4],
            "born"
        );
        assert_eq!(
            told(&mut flaps, &[&off, &off, &on, &on]),
            [false, false, true, false]
        );
        let gone = Change::LinkGone {
            name: "x".to_owned(),
            group: LINK_GROUP,
        };
        assert_eq!(
            told(&mut flaps, &[&off, &gone, &off, &on]),
            [false; 4],
            "another one"
        );
        assert_eq!(
            told(&mut flaps, &[&link(9, 0, false), &link(9, 0, true)]),
            [false; 2]
        );
    }

    #[rstest]
    #[case(link(9, LINK_GROUP, true), NOBODY)]
    #[case(link(9, LINK_GROUP, false), NOBODY)]
    #[case(link(9, 0, true), NOBODY)]
    #[case(link(LO_INDEX, 0, true), NETWORK)]
    #[case(Change::AddressGone { link: LO_INDEX }, NETWORK)]
    #[case(Change::AddressGone { link: 2 }, NOBODY)]
    #[case(Change::RouteGone { protocol: 104 }, NETWORK)]
    #[case(Change::RouteGone { protocol: 2 }, NOBODY)]
    #[case(Change::RuleGone { protocol: 104 }, RULES)]
    #[case(Change::RuleGone { protocol: 3 }, NOBODY)]
    #[case(Change::Forwarding { is_on: false }, NETWORK)]
    #[case(Change::Forwarding { is_on: true }, NOBODY)]
    #[case(table("headcni", TablePart::Set), NETWORK)]
    #[case(table("headcni-ports", rule("output")), NETWORK)]
    #[case(table("filter", TablePart::BaseChain), FIREWALL)]
    #[case(table("firewalld", TablePart::Itself), FIREWALL)]
    #[case(table("filter", rule("FORWARD")), FIREWALL)]
    #[case(table("filter", rule("DOCKER-USER")), FIREWALL)]
    #[case(table("nat", rule("KUBE-SERVICES")), NOBODY)]
    #[case(table("nat", TablePart::Chain("KUBE-SVC-X".to_owned())), NOBODY)]
    #[case(table("kube-proxy", TablePart::Set), NOBODY)]
    #[case(table("headcni-mesh", TablePart::Itself), MESH)]
    #[case(table("headcni-mesh", rule("postrouting")), MESH)]
    #[case(Change::Overrun, ALL)]
    fn only_what_matters_is_told(#[case] change: Change, #[case] expected: Concern) {
        assert_eq!(concern(&change), expected);
    }
}
