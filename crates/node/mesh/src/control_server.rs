//! What Headscale says about the mesh. A question costs it a good part of a second, so all nodes of a
//! cluster together ask it no more than every few seconds.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use headscale::{
    ApiKey, Client, ClientOptions, ClockSample, Error, ErrorKind, Generation, KeyUses,
    NewPreAuthKey, Node, NodeLifetime, PreAuthKey, Proxies, Secret,
};
use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};
use tailscaled::localapi::Status;

use crate::membership::plan::{HeadscaleView, OtherDevice, OwnDevice};
use node_config::{Config, Secrets};
use node_core::backoff::Backoff;
use node_core::error::display_chain;
use node_core::metrics::{ByServerCall, Metrics};

/// For a call as a whole.
const LIMIT: Duration = Duration::from_secs(15);
/// How often one node of many asks: so many times this.
const PER_NODE: Duration = Duration::from_secs(3);
/// The least and the most of it.
const SETTLED: [Duration; 2] = [Duration::from_secs(30), Duration::from_mins(10)];
/// How often while something is awaited, to begin with.
const AWAITING: Duration = Duration::from_secs(3);
/// The first and the longest wait after a failure.
const AFTER_FAILURE: [Duration; 2] = [Duration::from_secs(2), Duration::from_mins(2)];
/// A key that was made for one login is good for this long.
pub(crate) const KEY_LIFE: SignedDuration = SignedDuration::from_mins(10);
/// Whoever has been offline for so long, by the server's word, is gone: a machine that restarts is back
/// by then.
const GONE: SignedDuration = SignedDuration::from_mins(5);
/// And all that time, as far as we have looked: a server that was started again takes everybody to be
/// offline, and to have been so since he was offline before, until he has found back.
const WATCHED: Duration = Duration::from_mins(2);
/// How often it is looked when the API key expires.
const LOOK_AT_KEYS: Duration = Duration::from_hours(1);

/// The mesh's server, as far as it can be asked.
pub(crate) struct ControlServer {
    client: Client,
    key: Option<Secret>,
    user: Option<String>,
    tags: Vec<String>,
    known: LastAnswer,
    /// Whoever is offline, by his number: when that was found first, and last.
    offline: BTreeMap<u64, [Instant; 2]>,
    asked: Option<Instant>,
    failures: u32,
    /// How often it was asked since there was news, while something is awaited.
    asked_in_vain: u32,
    keys_asked: Option<Instant>,
    key_expires: Option<Timestamp>,
}

/// The last answer.
enum LastAnswer {
    Nothing,
    /// It answers, and there is no key to ask for more.
    Version,
    Nodes(Vec<Node>),
    Problem(Error),
}

/// Why there is no control server to ask.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ControlServerError {
    #[error("{0}")]
    Setup(String),
}

impl ControlServer {
    /// Nobody, if the configuration names none. It blocks: it reads files.
    pub(crate) fn new(
        config: &Config,
        secrets: &Secrets,
        metrics: &Arc<Metrics>,
    ) -> Result<Option<Self>, ControlServerError> {
        let Some(url) = &config.headscale.url else {
            return Ok(None);
        };
        let key = api_key(secrets);
        let settings = ClientOptions {
            url: url.clone(),
            api_key: key.clone(),
            ca_file: config.headscale.ca_file.clone(),
            timeout: LIMIT,
            proxies: Proxies::from_env(),
        };
        let client = Client::new(&settings)
            .map_err(|error| ControlServerError::Setup(display_chain(&error)))?;
        let metrics = Arc::clone(metrics);
        let client = client.with_observer(move |call| {
            let by = ByServerCall {
                operation: call.operation.to_owned(),
                outcome: call
                    .error
                    .map_or("ok", headscale::ErrorKind::label)
                    .to_owned(),
            };
            let duration = metrics.mesh.server_duration.get_or_create(&by);
            duration.observe(call.duration.as_secs_f64());
            if let Some(clock) = call.clock {
                let ahead = clock.local_ahead();
                metrics.mesh.clock_skew.set(ahead.as_secs_f64());
            }
        });
        Ok(Some(Self::asked_by(client, key, config)))
    }

    /// One that is asked by a client, which has this key.
    pub(crate) fn asked_by(client: Client, key: Option<Secret>, config: &Config) -> Self {
        Self {
            client,
            key,
            user: config.headscale.user.clone(),
            tags: config.tailscale.tags.clone(),
            known: LastAnswer::Nothing,
            offline: BTreeMap::new(),
            asked: None,
            failures: 0,
            asked_in_vain: 0,
            keys_asked: None,
            key_expires: None,
        }
    }

    /// Goes on with another key if there is one: keys are replaced while the daemon runs. One that is
    /// gone is being replaced, and stays good until then.
    pub(crate) fn take_key(&mut self, secrets: &Secrets) {
        let Some(key) = api_key(secrets).filter(|key| self.key.as_ref() != Some(key)) else {
            return;
        };
        match self.client.with_api_key(&key) {
            Ok(client) => {
                tracing::info!("using a new Headscale API key");
                (self.client, self.key) = (client, Some(key));
                (self.asked, self.keys_asked, self.key_expires) = (None, None, None);
                self.failures = 0;
            }
            Err(error) => {
                tracing::warn!(
                    error = display_chain(&error),
                    "failed to use the new Headscale API key"
                );
            }
        }
    }

    /// The list has to be read again: something was changed.
    pub(crate) fn forget(&mut self) {
        self.asked = None;
        self.expect_news();
    }

    /// Something has happened here that it may have an answer to: it is asked often again.
    pub(crate) fn expect_news(&mut self) {
        self.asked_in_vain = 0;
    }

    /// When it is to be asked again.
    pub(crate) fn due_in(&self, is_settled: bool) -> Duration {
        let Some(asked) = self.asked else {
            return Duration::ZERO;
        };
        let nodes = match &self.known {
            LastAnswer::Nodes(nodes) => nodes.len(),
            LastAnswer::Nothing | LastAnswer::Version | LastAnswer::Problem(_) => 0,
        };
        // Without a key there is nothing to wait for.
        let is_settled = is_settled || !self.has_key();
        let awaiting = (!is_settled).then_some(self.asked_in_vain);
        pause(nodes, awaiting, self.failures).saturating_sub(asked.elapsed())
    }

    /// Asks if that is due. What it to_message before is forgotten if it fails.
    pub(crate) async fn refresh(&mut self, is_settled: bool) {
        if !self.due_in(is_settled).is_zero() {
            return;
        }
        self.known = match self.ask().await {
            Ok(nodes) => {
                self.failures = 0;
                let in_vain = self.asked_in_vain.saturating_add(1);
                self.asked_in_vain = if is_settled { 0 } else { in_vain };
                self.note_offline(nodes.as_deref().unwrap_or_default(), Instant::now());
                nodes.map_or(LastAnswer::Version, LastAnswer::Nodes)
            }
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                // It may just be starting.
                self.offline.clear();
                LastAnswer::Problem(error)
            }
        };
        self.asked = Some(Instant::now());
    }

    /// Notes who is offline by a list that was read now.
    fn note_offline(&mut self, nodes: &[Node], now: Instant) {
        let before = std::mem::take(&mut self.offline);
        let offline = nodes.iter().filter(|node| !node.is_online);
        let span = |node: &Node| [before.get(&node.id).map_or(now, |[first, _]| *first), now];
        self.offline = offline.map(|node| (node.id, span(node))).collect();
    }

    /// Whoever is offline was found to be so that much earlier.
    #[cfg(test)]
    pub(crate) fn watch_for(&mut self, time: Duration) {
        for [first, _] in self.offline.values_mut() {
            *first = first.checked_sub(time).expect("the clock began before");
        }
    }

    async fn ask(&mut self) -> Result<Option<Vec<Node>>, Error> {
        // It refuses servers that are too old.
        self.client.generation().await?;
        if !self.has_key() {
            return Ok(None);
        }
        let nodes = self.client.nodes().await?;
        if self
            .keys_asked
            .is_none_or(|asked| asked.elapsed() > LOOK_AT_KEYS)
        {
            // Older keys may not list keys: that is no reason to do without the nodes.
            let prefix = self.key.as_ref().and_then(ApiKey::prefix_of);
            if let (Ok(keys), Some(prefix)) = (self.client.api_keys().await, prefix) {
                let ours = keys.iter().find(|key| key.prefix == prefix);
                self.key_expires = ours.and_then(|key| key.expiration);
            }
            self.keys_asked = Some(Instant::now());
        }
        Ok(Some(nodes))
    }

    /// Whether there is a key to ask with.
    pub(crate) fn has_key(&self) -> bool {
        self.client.has_api_key()
    }

    /// Whether anything is known of it.
    pub(crate) fn was_asked(&self) -> bool {
        !matches!(self.known, LastAnswer::Nothing)
    }

    /// What is wrong with it.
    pub(crate) fn problem(&self) -> Option<String> {
        self.error().map(display_chain)
    }

    /// What is wrong with it if it is too old to be joined.
    pub(crate) fn too_old(&self) -> Option<String> {
        let is_too_old = |error: &&Error| matches!(error.kind(), ErrorKind::TooOld { .. });
        let error = self.error().filter(is_too_old);
        error.map(display_chain)
    }

    /// Whether it is there, as far as a member needs it: it may refuse our key for its list.
    pub(crate) fn answers(&self) -> bool {
        match self.error() {
            Some(error) => matches!(error.kind(), ErrorKind::Unauthorized),
            None => self.was_asked(),
        }
    }

    fn error(&self) -> Option<&Error> {
        match &self.known {
            LastAnswer::Problem(error) => Some(error),
            LastAnswer::Nothing | LastAnswer::Version | LastAnswer::Nodes(_) => None,
        }
    }

    /// Whether its list can be read.
    pub(crate) fn lists(&self) -> bool {
        matches!(self.known, LastAnswer::Nodes(_))
    }

    /// When our key expires.
    pub(crate) fn key_expires(&self) -> Option<Timestamp> {
        self.key_expires
    }

    /// Its clock and ours, by its last answer.
    pub(crate) fn clock(&self) -> Option<ClockSample> {
        self.client.clock()
    }

    /// Its list, from this member's point of view.
    pub(crate) fn view(&self, status: &Status, hostname: &str) -> HeadscaleView {
        let LastAnswer::Nodes(nodes) = &self.known else {
            return HeadscaleView::Unknown;
        };
        // One that has a key and does not say which, as after its start, is one of the list. Which one
        // is not known, and this node's own must not be taken for another's.
        if status.has_node_key && is_no_key(&status.self_node.public_key) {
            return HeadscaleView::Unknown;
        }
        // By its key, never by its name, which others may have as well. Nobody is known by no key: the
        // server has rows that have none. An address in common, too: one key alone was forged before.
        let key = &status.self_node.public_key;
        let is_own = |node: &&Node| node.node_key == *key && shares_address(node, status);
        let found = nodes.iter().find(is_own).filter(|_| !is_no_key(key));
        let others = nodes
            .iter()
            .filter(|node| Some(node.id) != found.map(|own| own.id));
        HeadscaleView::Listed {
            own: found.map(|node| OwnDevice {
                id: node.id,
                advertised: node.advertised_routes.clone(),
                approved: node.approved_routes.clone(),
                serving: node.primary_routes.clone(),
            }),
            others: others.map(|node| self.other(node, hostname)).collect(),
        }
    }

    /// All of its list, for whoever can't say which of them it is.
    pub(crate) fn all_devices(&self, hostname: &str) -> Vec<OtherDevice> {
        let LastAnswer::Nodes(nodes) = &self.known else {
            return Vec::new();
        };
        let nodes = nodes.iter();
        nodes.map(|node| self.other(node, hostname)).collect()
    }

    fn other(&self, node: &Node, hostname: &str) -> OtherDevice {
        let span = self.offline.get(&node.id);
        let watched = span.map(|[first, last]| last.duration_since(*first));
        let now = by_server(Timestamp::now(), self.client.clock());
        let is_gone = is_gone(node, watched.unwrap_or_default(), now);
        other(node, self.tag(), hostname, is_gone)
    }

    /// The tag that every node has.
    fn tag(&self) -> Option<&str> {
        self.tags.first().map(String::as_str)
    }

    /// Makes a key for one login.
    pub(crate) async fn make_key(&self) -> Result<PreAuthKey, String> {
        let to_message = |error: Error| display_chain(&error);
        let generation = self.client.generation().await.map_err(to_message)?;
        let user = match &self.user {
            Some(name) => Some(match self.client.user(name).await.map_err(to_message)? {
                Some(user) => user.id,
                None => self.client.create_user(name).await.map_err(to_message)?.id,
            }),
            None if generation < Generation::V0_28 => {
                return Err(format!(
                    "create a pre-auth key: Headscale {generation} requires a user; set headscale.user"
                ));
            }
            None => None,
        };
        let new = NewPreAuthKey {
            user,
            tags: self.tags.clone(),
            uses: KeyUses::Once,
            nodes: NodeLifetime::Permanent,
            expiration: expiration(Timestamp::now(), self.client.clock()),
        };
        self.client
            .create_pre_auth_key(&new)
            .await
            .map_err(to_message)
    }

    /// Makes a key useless that nobody will log in with.
    pub(crate) async fn expire_key(&self, key: &PreAuthKey) {
        if let Err(error) = self.client.expire_pre_auth_key(key).await {
            // It expires by itself in a few minutes.
            tracing::debug!(
                error = display_chain(&error),
                "failed to expire an unused pre-auth key"
            );
        }
    }

    /// Approves networks of a node beside what others have approved: the server takes nothing but a
    /// whole list, and the one that was read last may be minutes old.
    pub(crate) async fn merge_approved(
        &mut self,
        node: u64,
        merge: impl FnOnce(&[IpNet]) -> Vec<IpNet>,
    ) -> Result<(), String> {
        let approved = match self.client.node(node).await {
            Ok(node) => node.approved_routes,
            Err(error) => return self.answered(Err(error)),
        };
        let routes = merge(&approved);
        if routes == approved {
            self.forget();
            return Ok(());
        }
        self.approve(node, &routes).await
    }

    /// Approves networks of a node; this is the whole list.
    pub(crate) async fn approve(&mut self, node: u64, routes: &[IpNet]) -> Result<(), String> {
        let outcome = self.client.approve_routes(node, routes).await;
        self.answered(outcome).map(drop)
    }

    /// Deletes a node.
    pub(crate) async fn delete(&mut self, node: u64) -> Result<(), String> {
        match self.client.delete_node(node).await {
            Err(error) if error.is_not_found() => {
                self.forget();
                Ok(())
            }
            outcome => self.answered(outcome),
        }
    }

    /// What came of a change. The list that was read before is of no use then, unless it failed for
    /// another reason than that: who is too busy for the one is not asked for the other.
    fn answered<T>(&mut self, outcome: Result<T, Error>) -> Result<T, String> {
        if outcome.as_ref().err().is_none_or(Error::is_not_found) {
            self.forget();
        }
        outcome.map_err(|error| display_chain(&error))
    }
}

/// A member that is not this one. What one of our nodes advertises will be approved, so it counts at
/// once. Anybody else may advertise what he likes: that takes nothing from anybody until it is approved.
fn other(node: &Node, tag: Option<&str>, hostname: &str, is_gone: bool) -> OtherDevice {
    let has_tag = tag.is_some_and(|tag| node.tags.iter().any(|one| one == tag));
    let mut routes = node.approved_routes.clone();
    if has_tag {
        routes.extend(&node.advertised_routes);
    }
    routes.sort();
    routes.dedup();
    OtherDevice {
        id: node.id,
        name: node.given_name.clone(),
        is_namesake: has_tag && !node.is_online && node.name.eq_ignore_ascii_case(hostname),
        is_gone: has_tag && is_gone,
        routes,
    }
}

/// Whether a member will not come back by itself, as far as can be told: see [`GONE`] and [`WATCHED`].
fn is_gone(node: &Node, watched: Duration, now: Timestamp) -> bool {
    let is_long_ago = |observed| now.duration_since(observed) >= GONE;
    !node.is_online && watched >= WATCHED && node.last_seen.is_none_or(is_long_ago)
}

fn api_key(secrets: &Secrets) -> Option<Secret> {
    let found = secrets.api_key.as_ref()?;
    Some(found.secret.clone())
}

/// Whether this is what tailscaled says when it says no key.
fn is_no_key(key: &str) -> bool {
    let digits = key.trim_start_matches("nodekey:");
    digits.chars().all(|digit| digit == '0')
}

fn shares_address(node: &Node, status: &Status) -> bool {
    let mut addresses = node.addresses.iter();
    status.addresses.is_empty() || addresses.any(|address| status.addresses.contains(address))
}

/// When a key that is made now expires, by the clock that is looked at then: the server's.
fn expiration(now: Timestamp, clock: Option<ClockSample>) -> Timestamp {
    let now = by_server(now, clock);
    // No clock that is about right comes near the end of time.
    now.checked_add(KEY_LIFE).unwrap_or(Timestamp::MAX)
}

/// What time it is at the server.
fn by_server(now: Timestamp, clock: Option<ClockSample>) -> Timestamp {
    let ahead = clock.map(|clock| clock.server.duration_since(clock.local));
    let then = now.checked_add(ahead.unwrap_or_default());
    then.unwrap_or(Timestamp::MAX)
}

/// How long to wait between two questions, give or take a tenth: nodes that start together must not
/// ask together for ever. While something is awaited it is asked sooner, the later the more often
/// that was in vain: what never comes must not cost the server more than what has come.
fn pause(nodes: usize, awaiting: Option<u32>, failures: u32) -> Duration {
    let shared = PER_NODE * u32::try_from(nodes).unwrap_or(u32::MAX);
    let settled = shared.clamp(SETTLED[0], SETTLED[1]);
    let pause = match (failures, awaiting) {
        (1.., _) => Backoff::delay(AFTER_FAILURE, failures),
        (0, Some(in_vain)) => Backoff::delay([AWAITING, settled], in_vain),
        (0, None) => settled,
    };
    let chance = u32::try_from(RandomState::new().hash_one(0) % 200).unwrap_or_default();
    pause * (900 + chance) / 1000
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case(&["tag:laptop"], &["192.168.7.0/24"])]
    #[case(&[], &["192.168.7.0/24"])]
    #[case(&["tag:k8s-node"], &["10.0.0.0/8", "192.168.7.0/24"])]
    fn what_strangers_advertise_counts_once_it_is_approved(
        #[case] tags: &[&str],
        #[case] counted: &[&str],
    ) {
        let node = json!({
            "id": "9",
            "name": "n9",
            "givenName": "n9",
            "tags": tags,
            "availableRoutes": ["10.0.0.0/8", "192.168.7.0/24"],
            "approvedRoutes": ["192.168.7.0/24"],
        });
        let node: Node = serde_json::from_value(node).unwrap();
        let found = other(&node, Some("tag:k8s-node"), "n1", false);
        let counted: Vec<IpNet> = counted.iter().map(|net| net.parse().unwrap()).collect();
        assert_eq!(found.routes, counted);
    }

    fn server() -> ControlServer {
        let settings = ClientOptions {
            url: "http://127.0.0.1:1".to_owned(),
            api_key: None,
            ca_file: None,
            timeout: LIMIT,
            proxies: Proxies::none(),
        };
        let client = Client::new(&settings).unwrap();
        ControlServer::asked_by(client, None, &Config::default())
    }

    fn nodes(list: &[(u64, bool)]) -> Vec<Node> {
        let node = |(id, is_online): &(u64, bool)| json!({ "id": id, "online": is_online });
        let nodes = list.iter().map(node);
        nodes
            .map(|node| serde_json::from_value(node).unwrap())
            .collect()
    }

    /// How it is at ten o'clock, for one who was there last at this time and was watched since.
    fn is_gone_at_ten(observed: Option<&str>, is_online: bool, watched: Duration) -> bool {
        let at = |time: &str| format!("2026-11-16T{time}:00Z");
        let node = json!({ "id": 9, "online": is_online, "lastSeen": observed.map(at) });
        let node: Node = serde_json::from_value(node).unwrap();
        is_gone(&node, watched, at("10:00").parse().unwrap())
    }

    #[test]
    fn who_is_offline_for_longer_than_a_restart_takes_is_gone() {
        assert!(is_gone_at_ten(Some("09:55"), false, WATCHED));
        assert!(is_gone_at_ten(None, false, WATCHED));
        assert!(!is_gone_at_ten(Some("09:56"), false, WATCHED));
        assert!(!is_gone_at_ten(Some("03:00"), true, WATCHED));
        // The server may have been started a moment ago.
        assert!(!is_gone_at_ten(Some("03:00"), false, WATCHED / 2));
    }

    #[test]
    fn who_was_online_in_between_is_watched_from_the_beginning() {
        let (mut server, start) = (server(), Instant::now());
        let mut watched = |seconds, list: &[(u64, bool)]| {
            let now = start + Duration::from_secs(seconds);
            server.note_offline(&nodes(list), now);
            let of = |id| server.offline.get(&id).map(|[first, last]| *last - *first);
            [1, 2].map(|id| of(id).map(|time| time.as_secs()))
        };
        assert_eq!(watched(0, &[(1, false), (2, true)]), [Some(0), None]);
        assert_eq!(watched(60, &[(1, false), (2, false)]), [Some(60), Some(0)]);
        assert_eq!(watched(90, &[(1, true), (2, false)]), [None, Some(30)]);
        assert_eq!(watched(95, &[(1, false)]), [Some(0), None]);
    }

    #[tokio::test]
    async fn a_server_that_was_away_is_watched_from_the_beginning() {
        let mut server = server();
        server.note_offline(&nodes(&[(1, false)]), Instant::now());
        server.refresh(false).await;
        assert!(server.problem().is_some() && server.offline.is_empty());
    }

    #[test]
    fn a_key_of_nought_is_none() {
        assert!(is_no_key(""));
        assert!(is_no_key(&format!("nodekey:{}", "0".repeat(64))));
        assert!(!is_no_key("nodekey:00ab"));
    }

    #[test]
    fn a_large_cluster_asks_no_more_often_than_a_small_one() {
        let about = |pause: Duration, desired: Duration| {
            assert!(
                pause >= desired * 9 / 10 && pause <= desired * 11 / 10,
                "{pause:?}"
            );
        };
        about(pause(2, None, 0), Duration::from_secs(30));
        about(pause(100, None, 0), Duration::from_mins(5));
        about(pause(10_000, None, 0), Duration::from_mins(10));
        about(pause(0, Some(1), 1), Duration::from_secs(2));
        about(pause(0, None, 3), Duration::from_secs(8));
        about(pause(0, None, u32::MAX), Duration::from_mins(2));
        // What is awaited in vain is asked for as seldom in the end.
        about(pause(100, Some(0), 0), Duration::from_secs(3));
        about(pause(100, Some(1), 0), Duration::from_secs(3));
        about(pause(100, Some(4), 0), Duration::from_secs(24));
        about(pause(2, Some(9), 0), Duration::from_secs(30));
        about(pause(100, Some(u32::MAX), 0), Duration::from_mins(5));
    }

    #[test]
    fn a_key_expires_by_the_servers_clock() {
        let now: Timestamp = "2026-11-16T06:00:00Z".parse().unwrap();
        let text = |clock| expiration(now, clock).to_string();
        assert_eq!(text(None), "2026-11-16T06:10:00Z");
        // They were read a while ago; the difference stays.
        let clock = |server: &str| {
            Some(ClockSample {
                server: server.parse().unwrap(),
                local: "2026-11-16T05:00:00Z".parse().unwrap(),
            })
        };
        assert_eq!(text(clock("2026-11-16T05:20:00Z")), "2026-11-16T06:30:00Z");
        assert_eq!(text(clock("2026-11-16T04:40:00Z")), "2026-11-16T05:50:00Z");
    }
}
