//! After the actions of a reconcile: peer routes, conditions, metrics, and the state file.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use headscale::ClockSample;
use ipnet::IpNet;
use jiff::Timestamp;
use tailscaled::localapi::Status;

use super::{FULL_PASS, Membership, ReconcileInputs};
use crate::address_overlap::{Addresses, intruders};
use crate::control_server::ControlServer;
use crate::inputs::MeshInputs;
use crate::membership::observe;
use crate::membership::plan::{self, Desired, HeadscaleView, LoginState, Observed};
use crate::peers::select::{PeerPolicy, PeerRoutes, select_peer_routes};
use crate::status::acl::AclPaths;
use crate::status::conditions::{self, ConditionState, Credential};
use crate::{TailscaledMode, interface};
use node_core::OtherNodes;
use node_core::conditions::{Condition, Conditions};
use node_core::error::display_chain;
use node_core::metrics::{ByCredential, ByRouteState};
use node_core::tailnet::guarded_peers;
use node_core::text::truncate_list;
use node_core::{MeshLink, MeshState};

/// The result of one reconcile.
struct Reconciled<'a> {
    tag: &'a str,
    host: &'a interface::Host,
    /// This node's pod CIDRs, if they are known.
    local: Option<&'a [IpNet]>,
    status: &'a Status,
    desired: &'a Desired,
    observed: &'a Observed,
    peer_routes: &'a PeerRoutes,
    link: Option<MeshLink>,
}

impl Membership {
    /// Selects the peer routes, reports the conditions and records the state. `refused` are the
    /// messages of failed actions.
    pub(super) async fn apply_peer_routes(
        &mut self,
        inputs: &ReconcileInputs<'_>,
        status: &Status,
        desired: &Desired,
        observed: &Observed,
        host: &interface::Host,
        refused: Vec<String>,
    ) -> MeshState {
        let settings = inputs.settings;
        let config = &settings.config;
        let tag = config.tailscale.tags.first().cloned().unwrap_or_default();
        let warmup = &mut self.peers.warmup;
        warmup.ping_new(&self.tailscaled, &status.peers, &tag);
        if self.mode == TailscaledMode::Managed && observed.login == LoginState::Running {
            self.routes.note(&config.tailscale.interface, host);
        }
        let known = self.state.memory().known.clone();
        let policy = peer_policy(settings, &tag, host, &known);
        let peer_routes = select_peer_routes(&observe::claims(status), &policy);
        let reconciled = Reconciled {
            tag: &tag,
            host,
            local: settings
                .pod_cidrs
                .as_ref()
                .map(|cidrs| cidrs.local.as_slice()),
            status,
            desired,
            observed,
            peer_routes: &peer_routes,
            link: interface::of(self.mode, &config.tailscale.interface, status, host),
        };
        let is_served = self.report_conditions(inputs, &reconciled, refused).await;
        self.record(reconciled, is_served).await
    }

    /// Returns whether peers send packets for this node's pods here.
    async fn report_conditions(
        &mut self,
        inputs: &ReconcileInputs<'_>,
        reconciled: &Reconciled<'_>,
        refused: Vec<String>,
    ) -> bool {
        let settings = inputs.settings;
        let Reconciled {
            tag,
            host,
            status,
            desired,
            observed,
            peer_routes,
            link,
            ..
        } = reconciled;
        let networks = settings.pod_cidrs.clone();
        let (local, base) = networks.as_ref().map_or((&[][..], &[][..]), |networks| {
            (networks.local.as_slice(), networks.base.as_slice())
        });
        let conflicts = plan::conflicts(desired, observed);
        let is_known = networks.is_some();
        let routed = if is_known {
            conditions::served(desired, observed, &conflicts)
        } else {
            ConditionState::fails("waiting for this node's pod CIDR (see PodCIDRKnown)")
        };
        // Nothing that comes on top of it is mended by asking more often.
        self.announcement.is_served = routed.holds;
        self.count(desired, observed, status, tag).await;

        let is_ours = desired.own.is_some();
        let untagged = conditions::untagged(observed, &status.self_node, tag, is_ours);
        let served = routed.clone().and(untagged);
        let left_out = conditions::left_out(&inputs.outside.left_out);
        let hindrances = [
            left_out,
            conditions::shielded(observed, is_ours),
            conditions::linkless(observed, status.has_tun, link.is_some(), is_ours),
            conditions::baseless(&without_base(settings), nodes(settings).as_ref()),
        ];
        let served_all = served.clone().and(refused);
        let served_all = served_all.and(hindrances.into_iter().flatten());
        let mut states = vec![
            (
                Condition::MeshJoined,
                conditions::joined(
                    observed,
                    is_ours,
                    &status.self_node.host_name,
                    &status.health,
                ),
            ),
            (
                Condition::PodCidrUnique,
                conditions::unique(&conflicts, &peer_routes.rejected),
            ),
            (Condition::RoutesServed, served_all),
            (Condition::HeadscaleReachable, self.reachable()),
            (Condition::CredentialsValid, self.credentials(status)),
            (Condition::ClockInSync, conditions::clock(self.clock())),
        ];
        states.push((
            Condition::NoAddressOverlap,
            address_overlap(settings, local, base, status, self.links_beside(host)),
        ));
        // What is not served yet is not in the filter either.
        let policy = if routed.holds {
            self.policy(local, base, peer_routes, tag).await
        } else {
            ConditionState::fails("unknown until this node's routes are served (see RoutesServed)")
        };
        // Networks that are not approved any more are not in the filter any more: that comes at once,
        // but what this node serves is states later, or never.
        if self.announcement.is_allowed
            && !policy.holds
            && let Some(server) = &mut self.control.server
        {
            server.forget();
        }
        self.announcement.is_allowed = policy.holds;
        states.push((Condition::PolicyAllowsPods, policy));
        report(&self.telemetry.conditions, states);

        if served.holds
            && let Some(seconds) = self.telemetry.metrics.mesh.note_served()
        {
            tracing::info!(seconds, "this node's routes are served");
        }
        served.holds
    }

    /// Writes the state file and returns what the other controllers consume.
    async fn record(&mut self, reconciled: Reconciled<'_>, is_served: bool) -> MeshState {
        let Reconciled {
            local,
            status,
            desired,
            observed,
            peer_routes,
            link,
            ..
        } = reconciled;
        let can_ask = self
            .control
            .server
            .as_ref()
            .is_some_and(ControlServer::has_key);
        let is_member = observed.login == LoginState::Running;
        let mut view = MeshState::default();
        let change = self.state.change_async(|memory| {
            memory.has_served |= is_served;
            if let HeadscaleView::Listed { own: Some(own), .. } = &observed.server {
                memory.id = Some(own.id);
                // The host's own is not ours to delete, whatever becomes of it.
                if desired.own.is_some() {
                    memory.note_number(own.id);
                }
            }
            // What is ours is as it was until it is known again.
            if let Some(local) = local {
                let outside = desired.routes.iter().filter(|route| !local.contains(route));
                memory.outside = outside.copied().collect();
                memory.forget_routes(&desired.routes, |it| {
                    is_over(it, desired, observed, can_ask)
                });
                let is_had =
                    |route: &&IpNet| memory.served.contains(route) || plan::serves(observed, route);
                memory.served = desired.routes.iter().filter(is_had).copied().collect();
            }
            memory.link = link.or(memory.link.take());
            // A tailscaled that has just started has no peers yet, and without the pod and cluster CIDRs no
            // peer route can be selected: keep the last ones.
            if local.is_some() && is_member {
                let remotes = peer_routes.remotes.iter();
                memory.meet(remotes.map(|remote| remote.network).collect());
                memory.shadowed = peer_routes.shadowed();
            }
            if is_member {
                memory.members = guarded_peers(tailnet_ips(status));
            }
            view = memory.view();
        });
        // A full disk is no reason to send packets to nodes that are gone, and none to new ones.
        if let Err(error) = change.await {
            tracing::warn!(%error, "failed to write the mesh state file");
        }
        MeshState {
            tailnet_ips: status.addresses.clone(),
            ..view
        }
    }

    /// Links in the network that tailscaled is in. In one of its own there are no others; and the
    /// host's may have addresses of another mesh.
    fn links_beside<'a>(&self, host: &'a interface::Host) -> &'a [(String, IpAddr)] {
        match self.mode {
            TailscaledMode::ManagedNetns => &[],
            TailscaledMode::Disabled | TailscaledMode::Host | TailscaledMode::Managed => {
                &host.addresses
            }
        }
    }

    /// Reports the conditions that are known although the reconcile failed.
    pub(super) fn report_failure(&self, message: String) {
        let mut states = vec![(Condition::MeshJoined, ConditionState::fails(message))];
        if self
            .control
            .server
            .as_ref()
            .is_none_or(ControlServer::was_asked)
        {
            states.push((Condition::HeadscaleReachable, self.reachable()));
        }
        // A wrong clock can be why: a key is good for minutes only.
        if let Some(clock) = self.clock() {
            states.push((Condition::ClockInSync, conditions::clock(Some(clock))));
        }
        if !self.announcement.is_served {
            let served =
                ConditionState::fails("unknown until this node joins the tailnet (see MeshJoined)");
            states.push((Condition::RoutesServed, served));
        }
        report(&self.telemetry.conditions, states);
    }

    /// The server's clock and ours, once it has answered.
    fn clock(&self) -> Option<ClockSample> {
        self.control.server.as_ref().and_then(ControlServer::clock)
    }

    fn reachable(&self) -> ConditionState {
        match (&self.control.server, &self.control.problem) {
            (None, Some(problem)) => ConditionState::fails(problem),
            (None, None) => {
                ConditionState::holds("Headscale is not used: headscale.url is not set")
            }
            (Some(server), _) => match server.problem() {
                Some(problem) => ConditionState::fails(problem),
                None if server.has_key() => ConditionState::holds("Headscale answers"),
                None => ConditionState::holds(
                    "Headscale answers; without an API key, only autoApprovers of the policy approve \
                     routes",
                ),
            },
        }
    }

    fn credentials(&self, status: &Status) -> ConditionState {
        let now = Timestamp::now();
        let can_make = self
            .control
            .server
            .as_ref()
            .is_some_and(ControlServer::has_key);
        let all = [
            Credential {
                name: "node-key",
                expires: status.self_node.key_expiry,
                remedy: renewal(self.mode, can_make, self.logins.keys.pre_auth_key.is_some()),
            },
            Credential {
                name: "api-key",
                expires: self
                    .control
                    .server
                    .as_ref()
                    .and_then(ControlServer::key_expires),
                remedy: "the daemon does not renew it: create another one (headscale apikeys create) \
                         and write it to headscale.apiKeyFile",
            },
        ];
        for credential in &all {
            let by = ByCredential {
                credential: credential.name.to_owned(),
            };
            let expiry = &self.telemetry.metrics.mesh.credential_expiry;
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
        conditions::credentials(&all, now)
    }

    async fn policy(
        &self,
        local: &[IpNet],
        base: &[IpNet],
        peer_routes: &PeerRoutes,
        tag: &str,
    ) -> ConditionState {
        let filter = match self.tailscaled.packet_filter().await {
            Ok(filter) => filter,
            Err(error) => {
                return ConditionState::holds(format!(
                    "packet filter unknown: {}",
                    display_chain(&error)
                ));
            }
        };
        // A network that is new since the last look may come to the filter after its node.
        let known = &self.state.memory().remotes;
        let others = peer_routes.remotes.iter().map(|remote| remote.network);
        let others: Vec<IpNet> = others.filter(|other| known.contains(other)).collect();
        conditions::policy(&AclPaths::look(&filter, local, base, &others), tag, base)
    }

    async fn count(&mut self, desired: &Desired, observed: &Observed, status: &Status, tag: &str) {
        let metrics = &self.telemetry.metrics.mesh;
        self.peers
            .measure
            .peers(status, tag, Timestamp::now(), metrics);
        let own = match &observed.server {
            HeadscaleView::Listed { own, .. } => own.as_ref(),
            HeadscaleView::Unknown => None,
        };
        let [advertised, approved, serving] =
            conditions::counts(desired, &observed.prefs, own, observed);
        let counts = [
            ("desired", desired.routes.len()),
            ("advertised", advertised),
            ("approved", approved),
            ("primary", serving),
        ];
        for (state, count) in counts {
            let by = ByRouteState {
                state: state.to_owned(),
            };
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            metrics.routes.get_or_create(&by).set(count);
        }
        if self
            .peers
            .measured_at
            .is_none_or(|measured| measured.elapsed() > FULL_PASS)
        {
            self.peers.measured_at = Some(Instant::now());
            let all = &self.telemetry.metrics;
            self.peers.measure.ping(&self.tailscaled, status, tag, all);
            self.peers.measure.ask(&self.tailscaled, metrics).await;
        }
    }
}

fn peer_policy<'a>(
    settings: &'a MeshInputs,
    tag: &str,
    host: &interface::Host,
    known: &'a [IpNet],
) -> PeerPolicy<'a> {
    let networks = settings.pod_cidrs.as_deref();
    PeerPolicy {
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
fn without_base(settings: &MeshInputs) -> Vec<IpNet> {
    let configured = &settings.config.network.pod_cidr.base.0;
    let networks = settings.pod_cidrs.as_deref();
    networks.map_or_else(Vec::new, |networks| networks.without_base(configured))
}

/// The other Nodes, if only their pod CIDRs are accepted (`kubernetes.strictPeers`).
pub(super) fn nodes(settings: &MeshInputs) -> Option<OtherNodes<'_>> {
    let is_strict = settings.config.kubernetes.strict_peers;
    let others = is_strict.then(|| settings.kube_nodes.others(&settings.node));
    others.flatten()
}

/// Whether a network that was ours is not ours any more, and is nowhere to be taken away. Without a key
/// for the server nothing ever is to be taken away there.
fn is_over(route: &IpNet, desired: &Desired, observed: &Observed, can_ask: bool) -> bool {
    let is_left = match &observed.server {
        HeadscaleView::Listed { own: Some(own), .. } => own.approved.contains(route),
        HeadscaleView::Listed { own: None, .. } => false,
        HeadscaleView::Unknown => can_ask,
    };
    !is_left && !desired.routes.contains(route) && !observed.prefs.advertised.contains(route)
}

fn address_overlap(
    settings: &MeshInputs,
    local: &[IpNet],
    base: &[IpNet],
    status: &Status,
    links: &[(String, IpAddr)],
) -> ConditionState {
    let mut pods = [base, local].concat();
    pods.sort();
    pods.dedup();
    let found = intruders(&Addresses {
        pods: IpNet::aggregate(&pods),
        services: settings.config.network.service_cidr.0.clone(),
        links: links.to_vec(),
        members: tailnet_ips(status).collect(),
    });
    if found.is_empty() {
        ConditionState::holds("no address overlaps the tailnet")
    } else {
        ConditionState::fails(truncate_list(found, "; "))
    }
}

/// What becomes of the node's key when it expires, or what to do before, by the keys that there are.
fn renewal(mode: TailscaledMode, can_make: bool, is_given: bool) -> &'static str {
    match (mode, can_make, is_given) {
        (TailscaledMode::Host, ..) => {
            "run \"tailscale up --force-reauth\" on this node; keys of tagged nodes do not expire"
        }
        (_, true, _) => {
            "the daemon logs in again when it expires; keys of tagged nodes do not expire"
        }
        (_, false, true) => {
            "the daemon logs in again when it expires if the pre-auth key is reusable \
             (headscale.preAuthKeyFile); keys of tagged nodes do not expire"
        }
        (_, false, false) => {
            "no key to log in again: set headscale.preAuthKeyFile or headscale.apiKeyFile; keys of \
             tagged nodes do not expire"
        }
    }
}

/// The addresses of all members, this one's among them.
fn tailnet_ips(status: &Status) -> impl Iterator<Item = IpAddr> {
    let peers = status.peers.iter().flat_map(|peer| &peer.addresses);
    status.addresses.iter().chain(peers).copied()
}

fn report(conditions: &Arc<Conditions>, states: Vec<(Condition, ConditionState)>) {
    for (condition, ConditionState { holds, message }) in states {
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
    use crate::membership::plan::Prefs;

    #[test]
    fn who_renews_a_nodes_key_depends_on_the_keys_that_there_are() {
        for given in [true, false] {
            assert!(renewal(TailscaledMode::Host, true, given).contains("tailscale up"));
            assert!(renewal(TailscaledMode::Managed, true, given).contains("daemon logs in again"));
        }
        for mode in [TailscaledMode::Managed, TailscaledMode::ManagedNetns] {
            let by_given = renewal(mode, false, true);
            assert!(
                by_given.contains("if the pre-auth key is reusable"),
                "{by_given}"
            );
            assert!(renewal(mode, false, false).contains("no key to log in again"));
        }
    }

    #[test]
    fn a_network_is_over_when_nobody_has_it_who_can_be_asked() {
        let nets = |text: &str| vec![text.parse::<IpNet>().unwrap()];
        let desired = Desired {
            routes: nets("10.244.1.0/24"),
            former: nets("10.244.9.7/32"),
            ..Desired::default()
        };
        let mut observed = Observed {
            login: LoginState::Running,
            prefs: Prefs::default(),
            serving: Vec::new(),
            peers: Vec::new(),
            server: HeadscaleView::Unknown,
        };
        let former = desired.former[0];
        assert!(
            !is_over(&former, &desired, &observed, true),
            "it may be approved"
        );
        assert!(is_over(&former, &desired, &observed, false));
        assert!(!is_over(&desired.routes[0], &desired, &observed, false));
        observed.prefs.advertised = nets("10.244.9.7/32");
        assert!(!is_over(&former, &desired, &observed, false));
    }
}
