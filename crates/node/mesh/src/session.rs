//! One way to be a member, for as long as the configuration stays the same: looks, decides, acts,
//! and tells. A pass may be made at any time; one that finds all in order changes nothing.

mod login;
mod refused;
mod tell;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipnet::{IpNet, Ipv4Net};
use tailscaled::localapi::{LocalApi, Prefs, Status};
use tokio::task::spawn_blocking;

use self::login::Logins;
use self::refused::Refused;
use super::greeted::Greeted;
use super::measure::Measure;
use super::memory::{HostPrefs, Kept};
use super::outside::Outside;
use super::patience::Patience;
use super::plan::{
    self, Doubt, Edit, Login, Own, OwnNode, Seen, ServerView, Step, Wanted, Why, plan,
};
use super::server::{NoServer, Server, doubled};
use super::unheard::Unheard;
use super::{Way, hostname, link, member};
use crate::inputs::MeshInputs;
use node_config::{Config, Secrets};
use node_core::AssignedCidrs;
use node_core::MeshState;
use node_core::cidr::overlap;
use node_core::conditions::Condition;
use node_core::error::display_chain;
use node_core::metrics::ByRepair;
use node_core::reconcile::Telemetry;

/// How long the server may take to list a node that has joined again. Another login before that
/// would only end the one that is on its way.
const LISTED: Duration = Duration::from_secs(15);
/// How long a tailscaled may take to be connected to a server that answers. It tries every 30 seconds
/// at least.
const CONNECTED: Duration = Duration::from_mins(1);
/// The longest wait until it is made to connect anew once more: that begins from the beginning.
const CONNECTED_AT_LAST: Duration = Duration::from_mins(10);
/// How long the server's answer is waited for when it does.
const ANSWERED: Duration = Duration::from_secs(10);
/// How often all is looked at though nothing happened.
const FULL_PASS: Duration = Duration::from_mins(1);
/// How soon something that is on its way is looked at again, if no event comes before.
const SOON: Duration = Duration::from_secs(1);
/// The first and the longest wait after a failed step.
const AFTER_FAILURE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];

/// A network that nobody has (TEST-NET-1 of RFC 5737), advertised for a moment to be heard.
const NOBODYS: IpNet = IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(192, 0, 2, 1), 32));

/// A member, or one to be.
pub(super) struct Session {
    way: Way,
    tailscaled: LocalApi,
    server: Option<Server>,
    /// Why there is none to ask though the configuration names one.
    no_server: Option<String>,
    /// Until that is tried again.
    server_missing: Patience,
    logins: Logins,
    standing: Option<Standing>,
    kept: Kept,
    measure: Measure,
    unheard: Unheard,
    greeted: Greeted,
    routes: link::Routes,
    telemetry: Telemetry,
    measured: Option<Instant>,
    joined: Option<Instant>,
    /// Since when tailscaled is on its way and the server answers.
    starting: Option<Instant>,
    /// How often it was made to begin anew since it is on its way.
    begun_anew: u32,
    /// Whether nobody was heard, which the next pass asks the server about.
    is_unheard: bool,
    is_settled: bool,
    /// Whether the policy let pods reach this node's at the last look.
    was_allowed: bool,
    failures: u32,
    /// What the server would not do.
    refused: Refused,
    /// Until this member and the server are made to tell each other again.
    unheard_of: Patience,
}

/// Where this node stands in the mesh. What the server has to say about it changes with it.
#[derive(Debug, PartialEq, Eq)]
struct Standing {
    login: Login,
    advertised: Vec<IpNet>,
    serving: Vec<IpNet>,
    listed: Option<OwnNode>,
}

impl Standing {
    fn of(seen: &Seen) -> Self {
        let listed = match &seen.server {
            ServerView::Listed { own, .. } => own.clone(),
            ServerView::Unknown => None,
        };
        Self {
            login: seen.login,
            advertised: seen.prefs.advertised.clone(),
            serving: seen.serving.clone(),
            listed,
        }
    }
}

/// What has to be known for a pass.
pub(super) struct Situation<'a> {
    pub(super) settings: &'a MeshInputs,
    /// Addresses of pods that are in none of this node's networks.
    pub(super) outside: &'a Outside,
}

/// What came of a pass.
struct Passed {
    /// Nothing while a login is waited for.
    view: Option<MeshState>,
    /// When to look again if nothing happens before.
    wait: Duration,
    /// Whether tailscaled refused something that was to be done, though this node is a member.
    is_refused: bool,
}

impl Session {
    /// It blocks: it reads files.
    pub(super) fn new(
        way: Way,
        tailscaled: LocalApi,
        config: &Config,
        kept: Kept,
        telemetry: Telemetry,
    ) -> Self {
        let secrets = Secrets::current(&config.headscale);
        let server = Server::new(config, &secrets, &telemetry.metrics);
        let mut session = Self {
            way,
            tailscaled,
            server: None,
            no_server: None,
            server_missing: Patience::new(SOON),
            logins: Logins::default(),
            standing: None,
            kept,
            measure: Measure::default(),
            unheard: Unheard::default(),
            greeted: Greeted::default(),
            routes: link::Routes::default(),
            telemetry,
            measured: None,
            joined: None,
            starting: None,
            begun_anew: 0,
            is_unheard: false,
            is_settled: false,
            was_allowed: false,
            failures: 0,
            refused: Refused::default(),
            unheard_of: Patience::new(SOON),
        };
        session.take_server(server);
        session
    }

    /// Goes on with a server, or without one.
    fn take_server(&mut self, server: Result<Option<Server>, NoServer>) {
        match server {
            Ok(server) => (self.server, self.no_server) = (server, None),
            Err(error) => {
                let message = error.to_string();
                let conditions = &self.telemetry.conditions;
                conditions.fails(Condition::HeadscaleReachable, &message);
                self.no_server = Some(message);
            }
        }
    }

    /// Tries again to have a server to ask: what was in the way may be put right by now.
    async fn ensure_server(&mut self, config: &Arc<Config>) {
        let is_missing = self.no_server.is_some();
        if !self.server_missing.is_over(is_missing, Instant::now()) {
            return;
        }
        let (config, secrets) = (Arc::clone(config), self.logins.keys.clone());
        let metrics = Arc::clone(&self.telemetry.metrics);
        let made = spawn_blocking(move || Server::new(&config, &secrets, &metrics));
        // It fails only if the process ends.
        if let Ok(server) = made.await {
            self.take_server(server);
        }
    }

    /// Looks, acts and tells. The time is when to look again if nothing happens before.
    pub(super) async fn pass(
        &mut self,
        situation: &Situation<'_>,
    ) -> (Option<MeshState>, Duration) {
        let view = match self.try_pass(situation).await {
            Ok(passed) if !passed.is_refused => {
                self.failures = 0;
                return (passed.view, passed.wait);
            }
            Ok(passed) => passed.view,
            // With the server away, tailscaled is so busy at times that it answers late, while packets
            // go on. Whoever was well a moment ago is looked at once more before that is told.
            Err(message) if self.is_settled && self.failures == 0 => {
                tracing::warn!(%message, "a look at the mesh failed");
                None
            }
            Err(message) => {
                self.tell_failure(message);
                None
            }
        };
        self.failures = self.failures.saturating_add(1);
        (view, doubled(AFTER_FAILURE, self.failures))
    }

    /// Whether tailscaled has to be started again, because somebody took its routes away.
    pub(super) fn has_lost_routes(&mut self) -> bool {
        self.routes.take_loss()
    }

    /// Whether others have not been heard for so long that the server has to be asked: the next pass
    /// does so.
    pub(super) async fn is_unheard(&mut self) -> bool {
        // The host's own is not ours to connect anew.
        let can_ask = |server: &&mut Server| self.way != Way::Hosts || server.has_key();
        let Some(server) = self.server.as_mut().filter(can_ask) else {
            return false;
        };
        // A tailscaled that does not answer is the next pass's business.
        let Ok(status) = self.tailscaled.status().await else {
            return false;
        };
        let now = Instant::now();
        // Who reads the list from time to time has no need of more.
        if !server.lists() {
            self.unheard.call(&self.tailscaled, &status.peers, now);
        }
        self.is_unheard = self.unheard.note(&status.peers, now);
        if self.is_unheard {
            tracing::info!("nothing is heard of other nodes; asking the server");
            server.forget();
        }
        self.is_unheard
    }

    async fn try_pass(&mut self, situation: &Situation<'_>) -> Result<Passed, String> {
        let settings = situation.settings;
        let said = |error: tailscaled::localapi::Error| display_chain(&error);
        let mut status = self.tailscaled.status().await.map_err(said)?;
        let mut prefs = self.tailscaled.prefs().await.map_err(said)?;
        if let Some(keys) = current(&settings.config).await {
            self.logins.keys = keys;
        }
        self.ensure_server(&settings.config).await;
        if let Some(server) = &mut self.server {
            server.take_key(&self.logins.keys);
            server.look(self.is_settled).await;
        }
        let wanted = self.wanted(situation);
        let mut seen = self.seen(&status, &prefs, &wanted, settings);
        self.note_standing(&seen);
        self.remember(&wanted, &prefs, seen.login).await?;
        let mut steps = plan(&wanted, &seen);
        let is_held = self.refused.is_held(Instant::now());
        // Whoever is deleted has to be gone now, not only when the list was read.
        if !is_held
            && steps.iter().any(Step::is_deletion)
            && let Some(server) = &mut self.server
        {
            server.forget();
            server.look(false).await;
            seen = self.seen(&status, &prefs, &wanted, settings);
            steps = plan(&wanted, &seen);
        }
        if seen.login == Login::Running && !steps.iter().any(Step::is_login) {
            self.logins.end();
        }
        steps.retain(|step| !is_too_soon(step, self.joined.map(|joined| joined.elapsed())));
        if let Some(doubt) = self.doubt(&seen)
            && wanted.own.is_some()
            && !steps.iter().any(Step::is_login)
        {
            steps.push(Step::Reconnect(doubt));
        }
        if steps.iter().any(Step::is_login)
            && let Some((message, wait)) = self.logins.held(Instant::now())
        {
            self.tell_failure(message);
            return Ok(Passed {
                view: None,
                wait,
                is_refused: false,
            });
        }
        // What the server refused a moment ago it is not asked at every sign.
        if is_held {
            steps.retain(|step| !step.is_servers());
        } else if !steps.iter().any(Step::is_servers) {
            self.refused.end();
        }
        let has_changed = !steps.is_empty();
        let mut refused = Vec::new();
        for step in steps {
            let (is_login, is_servers) = (step.is_login(), step.is_servers());
            match self.act(step, &wanted, &seen, settings).await {
                // What others refuse is told of beside all the rest.
                Err(message) if is_login => return Err(message),
                Err(message) if is_servers => self.refused.note(message, Instant::now()),
                Err(message) => refused.push(message),
                Ok(()) if is_servers => self.refused.end(),
                Ok(()) => {}
            }
        }
        if has_changed {
            status = self.tailscaled.status().await.map_err(said)?;
            prefs = self.tailscaled.prefs().await.map_err(said)?;
            if let Some(server) = &mut self.server {
                server.look(false).await;
            }
        }
        let seen = self.seen(&status, &prefs, &wanted, settings);
        let is_refused = !refused.is_empty();
        let held = self.refused.until();
        refused.extend(held.iter().map(|(message, _)| message.clone()));
        let view = self
            .tell(situation, &status, &wanted, &seen, refused)
            .await?;
        self.exchange_news(&wanted, &seen).await?;
        let wait = match (self.is_settled, &self.server) {
            (true, Some(server)) => server.due_in(true).min(FULL_PASS),
            (true, None) => FULL_PASS,
            (false, Some(server)) => server.due_in(false).clamp(SOON / 4, SOON),
            (false, None) => SOON,
        };
        let wait = held.map_or(wait, |(_, until)| {
            wait.min(until.saturating_duration_since(Instant::now()))
        });
        Ok(Passed {
            view: Some(view),
            wait,
            is_refused,
        })
    }

    /// Whoever stands elsewhere now may soon be told more of it.
    fn note_standing(&mut self, seen: &Seen) {
        let standing = Standing::of(seen);
        if self.standing.as_ref() == Some(&standing) {
            return;
        }
        self.standing = Some(standing);
        if let Some(server) = &mut self.server {
            server.expect_news();
        }
    }

    /// Makes this member and the server tell each other again, now and then, as long as one of them may
    /// not have heard the other.
    async fn exchange_news(&mut self, wanted: &Wanted, seen: &Seen) -> Result<(), String> {
        let is_unheard = plan::may_be_unheard(wanted, seen);
        let is_over = self.unheard_of.is_over(is_unheard, Instant::now());
        if !is_over {
            return Ok(());
        }
        let prefs = self.tailscaled.prefs().await;
        let advertised = prefs
            .map_err(|error| display_chain(&error))?
            .advertise_routes;
        if advertised.contains(&NOBODYS) {
            return Ok(());
        }
        tracing::debug!("this member and the server are made to tell each other again");
        // A tailscaled says all again when there is anything new, and is answered in the same way. The
        // next pass takes it away.
        let change = self.kept.change_aside(|memory| {
            if !memory.routes.contains(&NOBODYS) {
                memory.routes.push(NOBODYS);
            }
        });
        let outcome = change.await;
        outcome.map_err(|error| format!("keep what is known of the mesh: {error}"))?;
        let edit = member::prefs_edit(&Edit {
            advertised: Some(advertised.into_iter().chain([NOBODYS]).collect()),
            ..Edit::default()
        });
        let outcome = self.tailscaled.edit_prefs(&edit).await;
        outcome.map(drop).map_err(|error| display_chain(&error))
    }

    /// Whether what tailscaled says of itself may be long past, though the server answers. A server that has
    /// deleted a node does not tell it so. A login is no way to find out: of a member that is slow it would
    /// take what it has, and the key may be used up.
    fn doubt(&mut self, seen: &Seen) -> Option<Doubt> {
        let is_unheard = std::mem::take(&mut self.is_unheard);
        let is_answering = self.server.as_ref().is_some_and(Server::answers);
        if seen.login != Login::Starting {
            (self.starting, self.begun_anew) = (None, 0);
        }
        if !is_answering {
            self.starting = None;
            return None;
        }
        match (seen.login, &seen.server) {
            (Login::Running, ServerView::Unknown) if is_unheard => Some(Doubt::Unheard),
            (Login::Starting, _) => {
                let since = *self.starting.get_or_insert_with(Instant::now);
                let waits = [CONNECTED, CONNECTED_AT_LAST];
                if since.elapsed() <= doubled(waits, self.begun_anew.saturating_add(1)) {
                    return None;
                }
                self.starting = None;
                self.begun_anew = self.begun_anew.saturating_add(1);
                Some(Doubt::Stuck)
            }
            _ => None,
        }
    }

    fn wanted(&self, situation: &Situation<'_>) -> Wanted {
        let settings = situation.settings;
        let local = settings.pod_cidrs.as_ref();
        let mut routes = local.map_or_else(Vec::new, |networks| networks.local.clone());
        routes.extend(&situation.outside.routed);
        let own = settings.config.headscale.url.as_ref();
        let own = own.filter(|_| self.way != Way::Hosts).map(|server| Own {
            server: server.clone(),
            hostname: hostname(settings),
        });
        // As long as it is not known what is ours, nothing is known not to be.
        let is_former = |net: &&IpNet| match local {
            Some(_) => !routes.contains(net),
            None => **net == NOBODYS,
        };
        let former = self.kept.memory().routes.iter();
        Wanted {
            own,
            former: former.filter(is_former).copied().collect(),
            assigned: assigned(settings, &routes),
            served: self.kept.memory().served.clone(),
            numbers: self.kept.memory().numbers.clone(),
            routes,
        }
    }

    fn seen(&self, status: &Status, prefs: &Prefs, wanted: &Wanted, settings: &MeshInputs) -> Seen {
        let hostname = match &wanted.own {
            Some(own) => own.hostname.clone(),
            None => hostname(settings),
        };
        let server = self.server.as_ref();
        let server = server.map_or(ServerView::Unknown, |server| server.view(status, &hostname));
        member::seen(status, prefs, server)
    }

    /// Notes what is about to be changed: whoever undoes it later has to know.
    async fn remember(
        &mut self,
        wanted: &Wanted,
        prefs: &Prefs,
        login: Login,
    ) -> Result<(), String> {
        let is_hosts = self.way == Way::Hosts;
        // Whoever is logged out has nothing set, and nothing of it is changed.
        if is_hosts && matches!(login, Login::Needed | Login::Awaited) {
            return Ok(());
        }
        let change = self.kept.change_aside(|memory| {
            if is_hosts && memory.host.is_none() {
                memory.host = Some(HostPrefs {
                    accepts_routes: prefs.route_all,
                    keeps_source: prefs.no_snat,
                    passes_stateless: prefs.no_stateful_filtering,
                });
            }
            for route in &wanted.routes {
                // What a host advertised before us stays its own.
                let is_theirs = is_hosts && prefs.advertise_routes.contains(route);
                if !memory.routes.contains(route) && !is_theirs {
                    memory.routes.push(*route);
                }
            }
        });
        let outcome = change.await;
        outcome.map_err(|error| format!("keep what is known of the mesh: {error}"))
    }

    async fn act(
        &mut self,
        step: Step,
        wanted: &Wanted,
        seen: &Seen,
        settings: &MeshInputs,
    ) -> Result<(), String> {
        let repair = match &step {
            Step::Join(why) => {
                tracing::info!(%why, "joining the mesh");
                self.joined = Some(Instant::now());
                self.join(wanted, seen, settings).await?;
                tracing::info!("joined the mesh");
                "join"
            }
            Step::Reconnect(doubt) => {
                tracing::info!(%doubt, "connecting to the server anew");
                let outcome = self.tailscaled.reconnect(ANSWERED).await;
                outcome.map_err(|error| display_chain(&error))?;
                "reconnect"
            }
            Step::Set(edit) => {
                tracing::info!(?edit, "tailscaled is told otherwise");
                self.set(edit, wanted, seen).await?;
                "set"
            }
            Step::Approve { node, routes } => {
                tracing::info!(node, ?routes, "approving networks");
                if let Some(server) = &mut self.server {
                    let merge = |approved: &[IpNet]| plan::beside(approved, wanted, seen);
                    server.approve_beside(*node, merge).await?;
                }
                "approve"
            }
            Step::Forget { node, name } => {
                tracing::info!(
                    node,
                    name,
                    "deleting who is gone and has this node's networks"
                );
                if let Some(server) = &mut self.server {
                    server.delete(*node).await?;
                }
                "forget"
            }
        };
        let by = ByRepair {
            repair: repair.to_owned(),
        };
        self.telemetry.metrics.mesh.repairs.get_or_create(&by).inc();
        if let Some(server) = &mut self.server {
            server.forget();
        }
        Ok(())
    }

    /// Tells tailscaled otherwise. Its networks are one list, which others change as well: it is read
    /// again, because the server was asked since.
    async fn set(&self, edit: &Edit, wanted: &Wanted, seen: &Seen) -> Result<(), String> {
        let said = |error: tailscaled::localapi::Error| display_chain(&error);
        let mut edit = member::prefs_edit(edit);
        if let Some(advertised) = &mut edit.advertise_routes {
            let present = self.tailscaled.prefs().await.map_err(said)?;
            *advertised = plan::beside(&present.advertise_routes, wanted, seen);
        }
        self.tailscaled.edit_prefs(&edit).await.map_err(said)?;
        Ok(())
    }
}

/// What keys there are now: they are replaced while the daemon runs.
async fn current(config: &Config) -> Option<Secrets> {
    let headscale = config.headscale.clone();
    let read = spawn_blocking(move || Secrets::current(&headscale));
    // It fails only if the process ends.
    read.await.ok()
}

/// Whether a step has to wait, so long after a login began. A tailscaled that was a member says that it
/// is one again before the server has heard of it.
fn is_too_soon(step: &Step, since_login: Option<Duration>) -> bool {
    *step == Step::Join(Why::Forgotten) && since_login.is_some_and(|since| since < LISTED)
}

/// Networks that Kubernetes gave to this node, and that no other Node has.
fn assigned(settings: &MeshInputs, routes: &[IpNet]) -> Vec<IpNet> {
    let given = settings.kube_nodes.assigned(&settings.node);
    let (AssignedCidrs::Cidrs(given), Some(others)) = (given, tell::nodes(settings)) else {
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
    let said = settings.config.tailscale.hostname.as_deref();
    hostname::hostname(said, &settings.node)
}

#[cfg(test)]
mod tests;
