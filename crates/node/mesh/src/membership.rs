//! Keeps this node logged in and its routes served: observe, plan, apply, report. A reconcile may run
//! at any time; one that finds everything as desired changes nothing.

mod login;
pub(crate) mod observe;
pub mod plan;
mod refused_actions;
mod report;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipnet::{IpNet, Ipv4Net};
use tailscaled::localapi::{LocalApi, Prefs, Status};
use tokio::task::spawn_blocking;

use self::login::LoginAttempts;
use self::plan::{
    Action, Desired, HeadscaleView, LoginReason, LoginState, ManagedPrefs, Observed, OwnDevice,
    PrefsPatch, ReconnectReason,
};
use self::refused_actions::RefusedActions;
use crate::control_server::{ControlServer, ControlServerError};
use crate::extra_host_routes::ExtraHostRoutes;
use crate::inputs::MeshInputs;
use crate::peers::handshake_warmup::HandshakeWarmup;
use crate::state::{HostPrefs, MeshStateFile};
use crate::status::liveness::PeerLiveness;
use crate::status::measure::Measure;
use crate::{TailscaledMode, hostname, interface};
use node_config::{Config, Secrets};
use node_core::AssignedCidrs;
use node_core::MeshState;
use node_core::backoff::Backoff;
use node_core::cidr::overlap;
use node_core::conditions::Condition;
use node_core::error::display_chain;
use node_core::metrics::ByRepair;
use node_core::reconcile::Telemetry;

/// How long Headscale may take to list a node that has logged in again. Another login before that
/// would invalidate the first.
const LISTED: Duration = Duration::from_secs(15);
/// How long tailscaled may take to connect to a Headscale that answers; it retries every 30 seconds at
/// least. Each reconnect starts over, so the delay grows.
const CONNECT: [Duration; 2] = [Duration::from_mins(1), Duration::from_mins(10)];
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The interval of a full reconcile without events.
const FULL_PASS: Duration = Duration::from_mins(1);
/// The interval while this node's routes are not served.
const RETRY: Duration = Duration::from_secs(1);
const MAX_RETRY: Duration = Duration::from_mins(1);
const AFTER_FAILURE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];

/// An unused prefix (TEST-NET-1, RFC 5737) that is advertised for a moment to make tailscaled send its
/// host info again.
const PLACEHOLDER: IpNet = IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(192, 0, 2, 1), 32));

/// This node in the tailnet, for as long as the configuration stays the same.
pub(crate) struct Membership {
    mode: TailscaledMode,
    tailscaled: LocalApi,
    state: MeshStateFile,
    telemetry: Telemetry,
    control: ControlServerSlot,
    logins: LoginAttempts,
    connection: Connection,
    announcement: RouteAnnouncement,
    peers: PeerTraffic,
    routes: interface::Routes,
    failures: Backoff,
    refused: RefusedActions,
}

/// The Headscale client, or why there is none although the configuration names a server.
struct ControlServerSlot {
    server: Option<ControlServer>,
    problem: Option<String>,
    retry: Backoff,
}

/// How tailscaled's connection to Headscale comes about.
struct Connection {
    /// The start of the last login.
    login_at: Option<Instant>,
    /// Since when tailscaled is connecting although Headscale answers.
    starting_since: Option<Instant>,
    /// Reconnects since then.
    reconnects: u32,
}

/// Whether peers use this node's routes.
struct RouteAnnouncement {
    standing: Option<RouteStanding>,
    is_served: bool,
    /// The policy allowed pod traffic at the last reconcile.
    is_allowed: bool,
    /// Until tailscaled is made to announce again what Headscale does not list.
    refresh: Backoff,
}

/// What is sent to and received from peers.
#[derive(Default)]
struct PeerTraffic {
    warmup: HandshakeWarmup,
    liveness: PeerLiveness,
    /// Peers are silent: the next reconcile checks this node in Headscale.
    is_silent: bool,
    measure: Measure,
    measured_at: Option<Instant>,
}

/// Login and routes of this node. When they change, Headscale's list is likely to change too.
#[derive(Debug, PartialEq, Eq)]
struct RouteStanding {
    login: LoginState,
    advertised: Vec<IpNet>,
    serving: Vec<IpNet>,
    listed: Option<OwnDevice>,
}

impl RouteStanding {
    fn of(observed: &Observed) -> Self {
        let listed = match &observed.server {
            HeadscaleView::Listed { own, .. } => own.clone(),
            HeadscaleView::Unknown => None,
        };
        Self {
            login: observed.login,
            advertised: observed.prefs.advertised.clone(),
            serving: observed.serving.clone(),
            listed,
        }
    }
}

pub(crate) struct ReconcileInputs<'a> {
    pub(crate) settings: &'a MeshInputs,
    pub(crate) outside: &'a ExtraHostRoutes,
}

struct ReconcileOutcome {
    /// None while a login is pending.
    view: Option<MeshState>,
    /// The delay until the next reconcile without events.
    wait: Duration,
    /// An action on tailscaled failed although this node is connected.
    is_refused: bool,
}

impl Membership {
    /// Blocks: reads files.
    pub(crate) fn new(
        mode: TailscaledMode,
        tailscaled: LocalApi,
        config: &Config,
        state: MeshStateFile,
        telemetry: Telemetry,
    ) -> Self {
        let secrets = Secrets::current(&config.headscale);
        let server = ControlServer::new(config, &secrets, &telemetry.metrics);
        let mut membership = Self {
            mode,
            tailscaled,
            state,
            telemetry,
            control: ControlServerSlot {
                server: None,
                problem: None,
                retry: Backoff::new(RETRY, MAX_RETRY),
            },
            logins: LoginAttempts::default(),
            connection: Connection {
                login_at: None,
                starting_since: None,
                reconnects: 0,
            },
            announcement: RouteAnnouncement {
                standing: None,
                is_served: false,
                is_allowed: false,
                refresh: Backoff::new(RETRY, MAX_RETRY),
            },
            peers: PeerTraffic::default(),
            routes: interface::Routes::default(),
            failures: Backoff::new(AFTER_FAILURE[0], AFTER_FAILURE[1]),
            refused: RefusedActions::default(),
        };
        membership.set_server(server);
        membership
    }

    fn set_server(&mut self, server: Result<Option<ControlServer>, ControlServerError>) {
        match server {
            Ok(server) => (self.control.server, self.control.problem) = (server, None),
            Err(error) => {
                let message = error.to_string();
                let conditions = &self.telemetry.conditions;
                conditions.fails(Condition::HeadscaleReachable, &message);
                self.control.problem = Some(message);
            }
        }
    }

    /// Retries to set up the client: a missing CA file may exist by now.
    async fn ensure_server(&mut self, config: &Arc<Config>) {
        let is_missing = self.control.problem.is_some();
        if !self.control.retry.is_overdue(is_missing, Instant::now()) {
            return;
        }
        let (config, secrets) = (Arc::clone(config), self.logins.keys.clone());
        let metrics = Arc::clone(&self.telemetry.metrics);
        let made = spawn_blocking(move || ControlServer::new(&config, &secrets, &metrics));
        // It fails only if the process ends.
        if let Ok(server) = made.await {
            self.set_server(server);
        }
    }

    /// One reconcile; returns the delay until the next one without events.
    pub(crate) async fn reconcile(
        &mut self,
        inputs: &ReconcileInputs<'_>,
    ) -> (Option<MeshState>, Duration) {
        let view = match self.try_reconcile(inputs).await {
            Ok(passed) if !passed.is_refused => {
                self.failures.reset();
                return (passed.view, passed.wait);
            }
            Ok(passed) => passed.view,
            // Without Headscale, tailscaled is sometimes too busy to answer in time, while packets still
            // flow. So a served node is observed twice before a failure is reported.
            Err(message) if self.announcement.is_served && self.failures.attempts() == 0 => {
                tracing::warn!(%message, "reconcile failed, retrying");
                None
            }
            Err(message) => {
                self.report_failure(message);
                None
            }
        };
        (view, self.failures.next(Instant::now()))
    }

    /// Whether tailscaled must be restarted because its routes were deleted.
    pub(crate) fn has_lost_routes(&mut self) -> bool {
        self.routes.take_loss()
    }

    /// Whether peers have been silent for so long that the next reconcile must check this node in
    /// Headscale.
    pub(crate) async fn is_unheard(&mut self) -> bool {
        // The daemon does not reconnect the host's tailscaled.
        let can_ask =
            |server: &&mut ControlServer| self.mode != TailscaledMode::Host || server.has_key();
        let Some(server) = self.control.server.as_mut().filter(can_ask) else {
            return false;
        };
        // The next reconcile reports a tailscaled that does not answer.
        let Ok(status) = self.tailscaled.status().await else {
            return false;
        };
        let now = Instant::now();
        // With Headscale's list, pings are not needed.
        if !server.lists() {
            let liveness = &mut self.peers.liveness;
            liveness.call(&self.tailscaled, &status.peers, now);
        }
        self.peers.is_silent = self.peers.liveness.note(&status.peers, now);
        if self.peers.is_silent {
            tracing::info!("no packets from peers, checking this node in Headscale");
            server.forget();
        }
        self.peers.is_silent
    }

    async fn try_reconcile(
        &mut self,
        inputs: &ReconcileInputs<'_>,
    ) -> Result<ReconcileOutcome, String> {
        let settings = inputs.settings;
        let to_message = |error: tailscaled::localapi::Error| display_chain(&error);
        let mut status = self.tailscaled.status().await.map_err(to_message)?;
        let mut prefs = self.tailscaled.prefs().await.map_err(to_message)?;
        if let Some(keys) = current(&settings.config).await {
            self.logins.keys = keys;
        }
        self.ensure_server(&settings.config).await;
        if let Some(server) = &mut self.control.server {
            server.take_key(&self.logins.keys);
            server.refresh(self.announcement.is_served).await;
        }
        let desired = self.desired(inputs);
        let mut observed = self.observed(&status, &prefs, &desired, settings);
        self.note_standing(&observed);
        self.record_changes(&desired, &prefs, observed.login)
            .await?;
        let mut actions = plan::plan(&desired, &observed);
        let is_held = self.refused.is_held(Instant::now());
        // A node must still be offline when it is deleted, not only when the list was read.
        if !is_held
            && actions.iter().any(Action::is_deletion)
            && let Some(server) = &mut self.control.server
        {
            server.forget();
            server.refresh(false).await;
            observed = self.observed(&status, &prefs, &desired, settings);
            actions = plan::plan(&desired, &observed);
        }
        if observed.login == LoginState::Running && !actions.iter().any(Action::is_login) {
            self.logins.end();
        }
        actions
            .retain(|action| !must_wait(action, self.connection.login_at.map(|at| at.elapsed())));
        if let Some(reason) = self.reconnect_reason(&observed)
            && desired.own.is_some()
            && !actions.iter().any(Action::is_login)
        {
            actions.push(Action::Reconnect(reason));
        }
        if actions.iter().any(Action::is_login)
            && let Some((message, wait)) = self.logins.held(Instant::now())
        {
            self.report_failure(message);
            return Ok(ReconcileOutcome {
                view: None,
                wait,
                is_refused: false,
            });
        }
        // Headscale does not get a refused request again at every event.
        if is_held {
            actions.retain(|action| !action.is_headscale_request());
        } else if !actions.iter().any(Action::is_headscale_request) {
            self.refused.clear();
        }
        let has_changed = !actions.is_empty();
        let mut refused = Vec::new();
        for action in actions {
            let (is_login, is_headscale_request) =
                (action.is_login(), action.is_headscale_request());
            match self.act(action, &desired, &observed, settings).await {
                // Other failures are reported with all other conditions.
                Err(message) if is_login => return Err(message),
                Err(message) if is_headscale_request => {
                    self.refused.record(message, Instant::now());
                }
                Err(message) => refused.push(message),
                Ok(()) if is_headscale_request => self.refused.clear(),
                Ok(()) => {}
            }
        }
        if has_changed {
            status = self.tailscaled.status().await.map_err(to_message)?;
            prefs = self.tailscaled.prefs().await.map_err(to_message)?;
            if let Some(server) = &mut self.control.server {
                server.refresh(false).await;
            }
        }
        let observed = self.observed(&status, &prefs, &desired, settings);
        let is_refused = !refused.is_empty();
        let now = Instant::now();
        refused.extend(self.refused.pending(now).map(|(text, _)| text.to_owned()));
        let host = interface::look().await?;
        let view = self
            .apply_peer_routes(inputs, &status, &desired, &observed, &host, refused)
            .await;
        self.refresh_announcement(&desired, &observed).await?;
        let wait = match (self.announcement.is_served, &self.control.server) {
            (true, Some(server)) => server.due_in(true).min(FULL_PASS),
            (true, None) => FULL_PASS,
            (false, Some(server)) => server.due_in(false).clamp(RETRY / 4, RETRY),
            (false, None) => RETRY,
        };
        let held = self.refused.pending(Instant::now());
        let wait = held.map_or(wait, |(_, left)| wait.min(left));
        Ok(ReconcileOutcome {
            view: Some(view),
            wait,
            is_refused,
        })
    }

    /// Reads Headscale's list more often after a change.
    fn note_standing(&mut self, observed: &Observed) {
        let standing = RouteStanding::of(observed);
        if self.announcement.standing.as_ref() == Some(&standing) {
            return;
        }
        self.announcement.standing = Some(standing);
        if let Some(server) = &mut self.control.server {
            server.expect_news();
        }
    }

    /// Makes tailscaled announce its routes again while Headscale or tailscaled may have missed an
    /// update.
    async fn refresh_announcement(
        &mut self,
        desired: &Desired,
        observed: &Observed,
    ) -> Result<(), String> {
        let is_unheard = plan::needs_announcement(desired, observed);
        let refresh = &mut self.announcement.refresh;
        if !refresh.is_overdue(is_unheard, Instant::now()) {
            return Ok(());
        }
        let prefs = self.tailscaled.prefs().await;
        let advertised = prefs
            .map_err(|error| display_chain(&error))?
            .advertise_routes;
        if advertised.contains(&PLACEHOLDER) {
            return Ok(());
        }
        tracing::debug!("advertising a placeholder route to refresh Headscale and tailscaled");
        // tailscaled sends its whole host info after any change, and Headscale answers with a full
        // update. The next reconcile withdraws the placeholder.
        let change = self.state.change_async(|memory| {
            if !memory.routes.contains(&PLACEHOLDER) {
                memory.routes.push(PLACEHOLDER);
            }
        });
        let outcome = change.await;
        outcome.map_err(|error| format!("write the mesh state file: {error}"))?;
        let edit = observe::prefs_edit(&PrefsPatch {
            advertised: Some(advertised.into_iter().chain([PLACEHOLDER]).collect()),
            ..PrefsPatch::default()
        });
        let outcome = self.tailscaled.edit_prefs(&edit).await;
        outcome.map(drop).map_err(|error| display_chain(&error))
    }

    /// Whether tailscaled's state may be stale although Headscale answers: Headscale does not notify a
    /// node that it deleted. A login is no way to find out, because it would disconnect a slow node and
    /// may consume the key.
    fn reconnect_reason(&mut self, observed: &Observed) -> Option<ReconnectReason> {
        let is_unheard = std::mem::take(&mut self.peers.is_silent);
        let is_answering = self
            .control
            .server
            .as_ref()
            .is_some_and(ControlServer::answers);
        let connection = &mut self.connection;
        if observed.login != LoginState::Starting {
            (connection.starting_since, connection.reconnects) = (None, 0);
        }
        if !is_answering {
            connection.starting_since = None;
            return None;
        }
        match (observed.login, &observed.server) {
            (LoginState::Running, HeadscaleView::Unknown) if is_unheard => {
                Some(ReconnectReason::SilentPeers)
            }
            (LoginState::Starting, _) => {
                let since = *connection.starting_since.get_or_insert_with(Instant::now);
                let attempt = connection.reconnects.saturating_add(1);
                if since.elapsed() <= Backoff::delay(CONNECT, attempt) {
                    return None;
                }
                (connection.starting_since, connection.reconnects) = (None, attempt);
                Some(ReconnectReason::Stuck)
            }
            _ => None,
        }
    }

    fn desired(&self, inputs: &ReconcileInputs<'_>) -> Desired {
        let settings = inputs.settings;
        let local = settings.pod_cidrs.as_ref();
        let mut routes = local.map_or_else(Vec::new, |networks| networks.local.clone());
        routes.extend(&inputs.outside.routed);
        let own = settings.config.headscale.url.as_ref();
        let own = own
            .filter(|_| self.mode != TailscaledMode::Host)
            .map(|server| ManagedPrefs {
                server: server.clone(),
                hostname: hostname(settings),
            });
        // While the pod CIDRs are unknown, no route is known to be obsolete.
        let is_former = |net: &&IpNet| match local {
            Some(_) => !routes.contains(net),
            None => **net == PLACEHOLDER,
        };
        let former = self.state.memory().routes.iter();
        Desired {
            own,
            former: former.filter(is_former).copied().collect(),
            assigned: assigned(settings, &routes),
            served: self.state.memory().served.clone(),
            numbers: self.state.memory().numbers.clone(),
            routes,
        }
    }

    fn observed(
        &self,
        status: &Status,
        prefs: &Prefs,
        desired: &Desired,
        settings: &MeshInputs,
    ) -> Observed {
        let hostname = match &desired.own {
            Some(own) => own.hostname.clone(),
            None => hostname(settings),
        };
        let server = self.control.server.as_ref();
        let server = server.map_or(HeadscaleView::Unknown, |server| {
            server.view(status, &hostname)
        });
        observe::observed(status, prefs, server)
    }

    /// Records what is about to change, so that uninstall can undo it.
    async fn record_changes(
        &mut self,
        desired: &Desired,
        prefs: &Prefs,
        login: LoginState,
    ) -> Result<(), String> {
        let is_hosts = self.mode == TailscaledMode::Host;
        // A logged-out tailscaled has no prefs, and none are changed.
        if is_hosts && matches!(login, LoginState::Needed | LoginState::Awaited) {
            return Ok(());
        }
        let change = self.state.change_async(|memory| {
            if is_hosts && memory.host.is_none() {
                memory.host = Some(HostPrefs {
                    accepts_routes: prefs.route_all,
                    keeps_source: prefs.no_snat,
                    passes_stateless: prefs.no_stateful_filtering,
                });
            }
            for route in &desired.routes {
                // Routes that the host advertised before the daemon remain the host's.
                let is_theirs = is_hosts && prefs.advertise_routes.contains(route);
                if !memory.routes.contains(route) && !is_theirs {
                    memory.routes.push(*route);
                }
            }
        });
        let outcome = change.await;
        outcome.map_err(|error| format!("write the mesh state file: {error}"))
    }

    async fn act(
        &mut self,
        action: Action,
        desired: &Desired,
        observed: &Observed,
        settings: &MeshInputs,
    ) -> Result<(), String> {
        let repair = match &action {
            Action::Login(reason) => {
                tracing::info!(%reason, "joining the mesh");
                self.connection.login_at = Some(Instant::now());
                self.join(desired, observed, settings).await?;
                tracing::info!("joined the mesh");
                "join"
            }
            Action::Reconnect(reason) => {
                tracing::info!(%reason, "reconnecting tailscaled to Headscale");
                let outcome = self.tailscaled.reconnect(RECONNECT_TIMEOUT).await;
                outcome.map_err(|error| display_chain(&error))?;
                "reconnect"
            }
            Action::PatchPrefs(edit) => {
                tracing::info!(?edit, "updating tailscaled prefs");
                self.set(edit, desired, observed).await?;
                "set"
            }
            Action::ApproveRoutes { node, routes } => {
                tracing::info!(node, ?routes, "approving routes in Headscale");
                if let Some(server) = &mut self.control.server {
                    let merge =
                        |approved: &[IpNet]| plan::merge_routes(approved, desired, observed);
                    server.merge_approved(*node, merge).await?;
                }
                "approve"
            }
            Action::DeleteStaleDevice { node, name } => {
                tracing::info!(
                    node,
                    name,
                    "deleting stale Headscale node that still owns our pod CIDR"
                );
                if let Some(server) = &mut self.control.server {
                    server.delete(*node).await?;
                }
                "forget"
            }
        };
        let by = ByRepair {
            repair: repair.to_owned(),
        };
        self.telemetry.metrics.mesh.repairs.get_or_create(&by).inc();
        if let Some(server) = &mut self.control.server {
            server.forget();
        }
        Ok(())
    }

    /// Patches the prefs. Users change the advertised routes too, so the list is read again just before.
    async fn set(
        &self,
        edit: &PrefsPatch,
        desired: &Desired,
        observed: &Observed,
    ) -> Result<(), String> {
        let to_message = |error: tailscaled::localapi::Error| display_chain(&error);
        let mut edit = observe::prefs_edit(edit);
        if let Some(advertised) = &mut edit.advertise_routes {
            let present = self.tailscaled.prefs().await.map_err(to_message)?;
            *advertised = plan::merge_routes(&present.advertise_routes, desired, observed);
        }
        self.tailscaled
            .edit_prefs(&edit)
            .await
            .map_err(to_message)?;
        Ok(())
    }
}

/// Keys are replaced while the daemon runs.
async fn current(config: &Config) -> Option<Secrets> {
    let headscale = config.headscale.clone();
    let read = spawn_blocking(move || Secrets::current(&headscale));
    // It fails only if the process ends.
    read.await.ok()
}

/// Whether an action must wait after a login: tailscaled reports `Running` again before Headscale lists
/// the node.
fn must_wait(action: &Action, since_login: Option<Duration>) -> bool {
    *action == Action::Login(LoginReason::Forgotten)
        && since_login.is_some_and(|since| since < LISTED)
}

/// Pod CIDRs that Kubernetes assigned to this Node and to no other.
fn assigned(settings: &MeshInputs, routes: &[IpNet]) -> Vec<IpNet> {
    let given = settings.kube_nodes.assigned(&settings.node);
    let (AssignedCidrs::Cidrs(given), Some(others)) = (given, report::nodes(settings)) else {
        return Vec::new();
    };
    let is_anothers = |net: &IpNet| {
        let all = others.iter();
        let mut theirs = all.flat_map(|(_, facts)| facts.assigned.iter().chain(&facts.annotated));
        theirs.any(|theirs| overlap(theirs, net))
    };
    let is_ours = |net: &&IpNet| routes.contains(net) && !is_anothers(net);
    given.iter().filter(is_ours).copied().collect()
}

/// This node's name in the mesh.
fn hostname(settings: &MeshInputs) -> String {
    let configured = settings.config.tailscale.hostname.as_deref();
    hostname::hostname(configured, &settings.node)
}

#[cfg(test)]
mod tests;
