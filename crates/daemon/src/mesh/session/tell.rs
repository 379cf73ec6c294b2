//! What is told after a pass: conditions, metrics, and what other parts go by.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use headscale::ClockSample;
use ipnet::IpNet;
use jiff::Timestamp;
use tailscaled::localapi::Status;

use super::{FULL_PASS, Session, Situation};
use crate::causes::with_causes;
use crate::conditions::{Condition, Conditions};
use crate::kubernetes::Others;
use crate::listing::first_of;
use crate::mesh::apart::{Addresses, intruders, members};
use crate::mesh::passage::Passage;
use crate::mesh::plan::{self, Login, Seen, ServerView, Wanted};
use crate::mesh::remotes::{Judgement, Trust, judge};
use crate::mesh::server::Server;
use crate::mesh::verdict::{self, Credential, Verdict};
use crate::mesh::{MeshLink, View, Way, link, member};
use crate::metrics::{ByCredential, ByNetworks};
use crate::settings::Settings;

/// What a pass has found.
struct Looked<'a> {
    /// The node's networks, if they are known.
    local: Option<&'a [IpNet]>,
    status: &'a Status,
    wanted: &'a Wanted,
    seen: &'a Seen,
    judgement: &'a Judgement,
    link: Option<MeshLink>,
    is_served: bool,
}

impl Session {
    /// Tells everybody how it is. `refused` is what could not be done, in words.
    pub(super) async fn tell(
        &mut self,
        situation: &Situation<'_>,
        status: &Status,
        wanted: &Wanted,
        seen: &Seen,
        refused: Vec<String>,
    ) -> Result<View, String> {
        let settings = situation.settings;
        let config = &settings.config;
        let tag = config.tailscale.tags.first().cloned().unwrap_or_default();
        self.greeted.greet(&self.tailscaled, &status.peers, &tag);
        let networks = settings.networks.clone();
        let (local, base) = networks.as_ref().map_or((&[][..], &[][..]), |networks| {
            (networks.local.as_slice(), networks.base.as_slice())
        });
        let host = link::look().await?;
        if self.way == Way::Ours && seen.login == Login::Running {
            self.routes.note(&config.tailscale.interface, &host);
        }
        let known = self.kept.memory().known.clone();
        let trusted = trust(settings, &tag, &host, &known);
        let judgement = judge(&member::claims(status), &trusted);
        let conflicts = plan::conflicts(wanted, seen);
        let is_known = networks.is_some();
        let routed = if is_known {
            verdict::served(wanted, seen, &conflicts)
        } else {
            Verdict::fails("waiting for the node's networks: see PodCIDRKnown")
        };
        // Nothing that comes on top of it is mended by asking more often.
        self.is_settled = routed.holds;
        self.count(wanted, seen, status, &tag).await;

        let is_ours = wanted.own.is_some();
        let untagged = verdict::untagged(seen, &status.self_node, &tag, is_ours);
        let served = routed.clone().and(untagged);
        let left_out = verdict::left_out(&situation.outside.left_out);
        let link = link::of(self.way, &config.tailscale.interface, status, &host);
        let hindrances = [
            left_out,
            verdict::shielded(seen, is_ours),
            verdict::linkless(seen, status.has_tun, link.is_some(), is_ours),
            verdict::baseless(&without_base(settings), trusted.nodes.as_ref()),
        ];
        let served_all = served.clone().and(refused);
        let served_all = served_all.and(hindrances.into_iter().flatten());
        let mut told = vec![
            (
                Condition::MeshJoined,
                verdict::joined(seen, is_ours, &status.self_node.host_name, &status.health),
            ),
            (
                Condition::NetworksUnique,
                verdict::unique(&conflicts, &judgement.refusals),
            ),
            (Condition::NetworksServed, served_all),
            (Condition::HeadscaleReachable, self.reachable()),
            (Condition::CredentialsLast, self.credentials(status)),
            (Condition::ClockRight, verdict::clock(self.clock())),
        ];
        told.push((
            Condition::AddressesApart,
            apart(settings, local, base, status, self.links_beside(&host)),
        ));
        // What is not served yet is not in the filter either.
        let policy = if routed.holds {
            self.policy(local, base, &judgement, &tag).await
        } else {
            Verdict::fails("not known until packets for pods are sent here: see NetworksServed")
        };
        // Networks that are not approved any more are not in the filter any more: that comes at once,
        // but what this node serves is told later, or never.
        if self.was_allowed
            && !policy.holds
            && let Some(server) = &mut self.server
        {
            server.forget();
        }
        self.was_allowed = policy.holds;
        told.push((Condition::PolicyAllowsPods, policy));
        report(&self.reports.conditions, told);

        if served.holds
            && let Some(seconds) = self.reports.metrics.mesh.note_served()
        {
            tracing::info!(seconds, "the mesh serves this node");
        }
        let looked = Looked {
            local: networks.as_ref().map(|networks| networks.local.as_slice()),
            status,
            wanted,
            seen,
            judgement: &judgement,
            link,
            is_served: served.holds,
        };
        Ok(self.keep(looked).await)
    }

    /// Keeps what has to be known after a restart, and says what others go by.
    async fn keep(&mut self, looked: Looked<'_>) -> View {
        let Looked {
            local,
            status,
            wanted,
            seen,
            judgement,
            link,
            is_served,
        } = looked;
        let can_ask = self.server.as_ref().is_some_and(Server::has_key);
        let is_member = seen.login == Login::Running;
        let mut view = View::default();
        let change = self.kept.change_aside(|memory| {
            memory.has_served |= is_served;
            if let ServerView::Listed { own: Some(own), .. } = &seen.server {
                memory.id = Some(own.id);
                // The host's own is not ours to delete, whatever becomes of it.
                if wanted.own.is_some() {
                    memory.note_number(own.id);
                }
            }
            // What is ours is as it was until it is known again.
            if let Some(local) = local {
                let outside = wanted.routes.iter().filter(|route| !local.contains(route));
                memory.outside = outside.copied().collect();
                memory.forget_routes(&wanted.routes, |it| is_over(it, wanted, seen, can_ask));
                let is_had =
                    |route: &&IpNet| memory.served.contains(route) || plan::serves(seen, route);
                memory.served = wanted.routes.iter().filter(is_had).copied().collect();
            }
            memory.link = link.or(memory.link.take());
            // A tailscaled that has just started knows nobody, which does not mean that they are gone;
            // and without this node's and the cluster's networks nobody's word counts.
            if local.is_some() && is_member {
                let remotes = judgement.remotes.iter();
                memory.meet(remotes.map(|remote| remote.network).collect());
                memory.stolen = judgement.stolen();
            }
            if is_member {
                memory.members = members(everybody(status));
            }
            view = memory.view();
        });
        // A full disk is no reason to send packets to nodes that are gone, and none to new ones.
        if let Err(error) = change.await {
            tracing::warn!(%error, "what is known of the mesh can't be kept");
        }
        View {
            addresses: status.addresses.clone(),
            ..view
        }
    }

    /// Links in the network that tailscaled is in. In one of its own there are no others; and the
    /// host's may have addresses of another mesh.
    fn links_beside<'a>(&self, host: &'a link::Host) -> &'a [(String, IpAddr)] {
        match self.way {
            Way::OursApart => &[],
            Way::None | Way::Hosts | Way::Ours => &host.addresses,
        }
    }

    /// Tells what can be told though a pass has failed: what it failed for is not all that a person
    /// looks at.
    pub(super) fn tell_failure(&self, message: String) {
        let mut told = vec![(Condition::MeshJoined, Verdict::fails(message))];
        if self.server.as_ref().is_none_or(Server::was_asked) {
            told.push((Condition::HeadscaleReachable, self.reachable()));
        }
        // A wrong clock can be why: a key is good for minutes only.
        if let Some(clock) = self.clock() {
            told.push((Condition::ClockRight, verdict::clock(Some(clock))));
        }
        if !self.is_settled {
            let served = Verdict::fails("not known while this node can't join: see MeshJoined");
            told.push((Condition::NetworksServed, served));
        }
        report(&self.reports.conditions, told);
    }

    /// The server's clock and ours, once it has answered.
    fn clock(&self) -> Option<ClockSample> {
        self.server.as_ref().and_then(Server::clock)
    }

    fn reachable(&self) -> Verdict {
        match (&self.server, &self.no_server) {
            (None, Some(problem)) => Verdict::fails(problem),
            (None, None) => Verdict::holds("the server is not asked: headscale.url is not set"),
            (Some(server), _) => match server.problem() {
                Some(problem) => Verdict::fails(problem),
                None if server.has_key() => Verdict::holds("the server answers"),
                None => Verdict::holds(
                    "the server answers; there is no API key, so it approves by its policy \
                     (autoApprovers)",
                ),
            },
        }
    }

    fn credentials(&self, status: &Status) -> Verdict {
        let now = Timestamp::now();
        let can_make = self.server.as_ref().is_some_and(Server::has_key);
        let all = [
            Credential {
                name: "node-key",
                expires: status.self_node.key_expiry,
                remedy: renewal(self.way, can_make, self.logins.keys.pre_auth_key.is_some()),
            },
            Credential {
                name: "api-key",
                expires: self.server.as_ref().and_then(Server::key_expires),
                remedy: "the daemon does not renew it: make another one (headscale apikeys create) and put \
                         it in its file",
            },
        ];
        for credential in &all {
            let by = ByCredential {
                credential: credential.name.to_owned(),
            };
            let expiry = &self.reports.metrics.mesh.credential_expiry;
            match credential.expires {
                Some(expires) => {
                    let left = expires.duration_since(now).as_secs_f64();
                    expiry.get_or_create(&by).set(left);
                }
                None => {
                    expiry.remove(&by);
                }
            }
        }
        verdict::credentials(&all, now)
    }

    async fn policy(
        &self,
        local: &[IpNet],
        base: &[IpNet],
        judgement: &Judgement,
        tag: &str,
    ) -> Verdict {
        let filter = match self.tailscaled.packet_filter().await {
            Ok(filter) => filter,
            Err(error) => return Verdict::holds(format!("not known: {}", with_causes(&error))),
        };
        // A network that is new since the last look may come to the filter after its node.
        let known = &self.kept.memory().remotes;
        let others = judgement.remotes.iter().map(|remote| remote.network);
        let others: Vec<IpNet> = others.filter(|other| known.contains(other)).collect();
        verdict::policy(&Passage::look(&filter, local, base, &others), tag, base)
    }

    async fn count(&mut self, wanted: &Wanted, seen: &Seen, status: &Status, tag: &str) {
        let metrics = &self.reports.metrics.mesh;
        self.measure.peers(status, tag, Timestamp::now(), metrics);
        let own = match &seen.server {
            ServerView::Listed { own, .. } => own.as_ref(),
            ServerView::Unknown => None,
        };
        let [advertised, approved, serving] = verdict::counts(wanted, &seen.prefs, own, seen);
        let counts = [
            ("wanted", wanted.routes.len()),
            ("advertised", advertised),
            ("approved", approved),
            ("serving", serving),
        ];
        for (state, count) in counts {
            let by = ByNetworks {
                state: state.to_owned(),
            };
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            metrics.networks.get_or_create(&by).set(count);
        }
        if self
            .measured
            .is_none_or(|measured| measured.elapsed() > FULL_PASS)
        {
            self.measured = Some(Instant::now());
            let all = &self.reports.metrics;
            self.measure.ping(&self.tailscaled, status, tag, all);
            self.measure.ask(&self.tailscaled, metrics).await;
        }
    }
}

/// What other members' claims are judged by.
fn trust<'a>(
    settings: &'a Settings,
    tag: &str,
    host: &link::Host,
    known: &'a [IpNet],
) -> Trust<'a> {
    let networks = settings.networks.as_deref();
    Trust {
        tag: tag.to_owned(),
        base: networks.map_or_else(Vec::new, |networks| networks.base.clone()),
        local: networks.map_or_else(Vec::new, |networks| networks.local.clone()),
        nodes: nodes(settings),
        known,
        services: settings.config.network.service_cidr.0.clone(),
        links: host.networks.clone(),
    }
}

/// This node's networks that are in none of the cluster's.
fn without_base(settings: &Settings) -> Vec<IpNet> {
    let said = &settings.config.network.pod_cidr.base.0;
    let networks = settings.networks.as_deref();
    networks.map_or_else(Vec::new, |networks| networks.without_base(said))
}

/// Other nodes by the word of Kubernetes, where that is what counts.
pub(super) fn nodes(settings: &Settings) -> Option<Others<'_>> {
    let is_strict = settings.config.kubernetes.strict_peers;
    let others = is_strict.then(|| settings.kubernetes.others(&settings.node));
    others.flatten()
}

/// Whether a network that was ours is not ours any more, and is nowhere to be taken away. Without a key
/// for the server nothing ever is to be taken away there.
fn is_over(route: &IpNet, wanted: &Wanted, seen: &Seen, can_ask: bool) -> bool {
    let is_left = match &seen.server {
        ServerView::Listed { own: Some(own), .. } => own.approved.contains(route),
        ServerView::Listed { own: None, .. } => false,
        ServerView::Unknown => can_ask,
    };
    !is_left && !wanted.routes.contains(route) && !seen.prefs.advertised.contains(route)
}

fn apart(
    settings: &Settings,
    local: &[IpNet],
    base: &[IpNet],
    status: &Status,
    links: &[(String, IpAddr)],
) -> Verdict {
    let mut pods = [base, local].concat();
    pods.sort();
    pods.dedup();
    let found = intruders(&Addresses {
        pods: IpNet::aggregate(&pods),
        services: settings.config.network.service_cidr.0.clone(),
        links: links.to_vec(),
        members: everybody(status).collect(),
    });
    if found.is_empty() {
        Verdict::holds("nothing has addresses that the mesh needs")
    } else {
        Verdict::fails(first_of(found, "; "))
    }
}

/// What becomes of the node's key when it expires, or what to do before, by the keys that there are.
fn renewal(way: Way, can_make: bool, is_given: bool) -> &'static str {
    match (way, can_make, is_given) {
        (Way::Hosts, ..) => {
            "run \"tailscale up --force-reauth\" on this node; a tagged node's does not expire"
        }
        (_, true, _) => {
            "it is renewed by a login when it has expired; a tagged node's does not expire"
        }
        (_, false, true) => {
            "it is renewed when it has expired, if the pre-auth key is good for another login \
             (headscale.preAuthKeyFile); a tagged node's does not expire"
        }
        (_, false, false) => {
            "there is no key to renew it with: set headscale.preAuthKeyFile or headscale.apiKeyFile; a \
             tagged node's does not expire"
        }
    }
}

/// The addresses of all members, this one's among them.
fn everybody(status: &Status) -> impl Iterator<Item = IpAddr> {
    let peers = status.peers.iter().flat_map(|peer| &peer.addresses);
    status.addresses.iter().chain(peers).copied()
}

fn report(conditions: &Arc<Conditions>, told: Vec<(Condition, Verdict)>) {
    for (condition, Verdict { holds, message }) in told {
        if holds {
            conditions.holds(condition, message);
        } else {
            conditions.fails(condition, message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::plan::Prefs;

    #[test]
    fn who_renews_a_nodes_key_depends_on_the_keys_that_there_are() {
        for given in [true, false] {
            assert!(renewal(Way::Hosts, true, given).contains("tailscale up"));
            assert!(renewal(Way::Ours, true, given).contains("renewed by a login"));
        }
        for way in [Way::Ours, Way::OursApart] {
            let by_given = renewal(way, false, true);
            assert!(
                by_given.contains("if the pre-auth key is good"),
                "{by_given}"
            );
            assert!(renewal(way, false, false).contains("no key to renew it with"));
        }
    }

    #[test]
    fn a_network_is_over_when_nobody_has_it_who_can_be_asked() {
        let nets = |text: &str| vec![text.parse::<IpNet>().unwrap()];
        let wanted = Wanted {
            routes: nets("10.244.1.0/24"),
            former: nets("10.244.9.7/32"),
            ..Wanted::default()
        };
        let mut seen = Seen {
            login: Login::Running,
            prefs: Prefs::default(),
            serving: Vec::new(),
            peers: Vec::new(),
            server: ServerView::Unknown,
        };
        let former = wanted.former[0];
        assert!(
            !is_over(&former, &wanted, &seen, true),
            "it may be approved"
        );
        assert!(is_over(&former, &wanted, &seen, false));
        assert!(!is_over(&wanted.routes[0], &wanted, &seen, false));
        seen.prefs.advertised = nets("10.244.9.7/32");
        assert!(!is_over(&former, &wanted, &seen, false));
    }
}
