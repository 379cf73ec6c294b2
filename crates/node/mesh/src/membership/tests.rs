mod fake_headscale;

use std::sync::Arc;

use serde_json::{Value, json};

use self::fake_headscale::Fake;
use super::*;
use node_config::NodeConfig;
use node_core::conditions::Conditions;
use node_core::files::write_atomic;
use node_core::metrics::Metrics;
use node_core::{CidrSource, PodCidrs};
use node_core::{KubeNodes, NodeFacts};

const CLUSTER: &str = "10.244.0.0/16";
const OURS: &str = "10.244.1.0/24";
const POD: &str = "10.244.200.9/32";
/// Somebody else's.
const THEIRS: &str = "192.168.7.0/24";
const APPROVE: &str = "POST /api/v1/node/1/approve_routes";
const LIST: &str = "GET /api/v1/node";

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn sorted(list: &Value) -> Vec<String> {
    let mut texts: Vec<String> = serde_json::from_value(list.clone()).unwrap();
    texts.sort();
    texts
}

fn settings(config: Config, local: &[&str]) -> MeshInputs {
    let node = node_core::node_name::find(Some("n1"), None).unwrap();
    let mut settings = MeshInputs::new(
        NodeConfig::new(Arc::new(config), node),
        Arc::default(),
        Arc::default(),
    );
    settings.pod_cidrs = (!local.is_empty()).then(|| networks(local, CLUSTER));
    settings
}

fn networks(local: &[&str], base: &str) -> Arc<PodCidrs> {
    Arc::new(PodCidrs {
        local: nets(local),
        base: nets(&[base]),
        source: CidrSource::NodeLocal,
        base_source: None,
    })
}

/// A session that goes by what was known before.
fn session(
    fake: &Fake,
    mode: TailscaledMode,
    settings: &MeshInputs,
    routes: &[&str],
) -> Membership {
    let mut kept = MeshStateFile::load(fake.files.path());
    kept.change(|memory| {
        memory.routes = nets(routes);
        memory.outside = nets(routes).into_iter().skip(1).collect();
    })
    .unwrap();
    let telemetry = Telemetry {
        conditions: Arc::new(Conditions::default()),
        metrics: Arc::new(Metrics::new()),
    };
    let config = &settings.config;
    let mut session = Membership::new(mode, fake.tailscaled(), config, kept, telemetry);
    if session.control.server.is_some() {
        session.control.server = Some(fake.server(config));
    }
    session
}

async fn pass(
    session: &mut Membership,
    settings: &MeshInputs,
    outside: &[&str],
) -> Option<MeshState> {
    let outside = ExtraHostRoutes {
        routed: nets(outside).into_iter().collect(),
        ..ExtraHostRoutes::default()
    };
    let inputs = ReconcileInputs {
        settings,
        outside: &outside,
    };
    session.pass(&inputs).await.0
}

fn told(session: &Membership, condition: Condition) -> (bool, String) {
    let all = session.telemetry.conditions.snapshot();
    let state = all.into_iter().find(|(one, _)| *one == condition);
    let (_, state) = state.unwrap();
    (state.is_true(), state.message)
}

/// Makes passes, as if there were news all the time, until something is the case.
async fn until(
    session: &mut Membership,
    settings: &MeshInputs,
    is_so: impl Fn(&Membership) -> bool,
) {
    let limit = Instant::now() + Duration::from_mins(1);
    while !is_so(session) {
        assert!(Instant::now() < limit, "it does not come to that");
        pass(session, settings, &[]).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn a_login_is_given_time() {
    let forgotten = Action::Login(LoginReason::Forgotten);
    assert!(!is_too_soon(&forgotten, None));
    assert!(is_too_soon(&forgotten, Some(Duration::from_secs(1))));
    assert!(!is_too_soon(&forgotten, Some(LISTED)));
    // This is what tailscaled says itself.
    assert!(!is_too_soon(
        &Action::Login(LoginReason::LoggedOut),
        Some(Duration::ZERO)
    ));
}

#[tokio::test]
async fn as_long_as_its_networks_are_not_known_a_node_withdraws_none() {
    let fake = Fake::start(&[OURS, POD]).await;
    let unknown = settings(fake.config(), &[]);
    let mut session = session(&fake, TailscaledMode::Managed, &unknown, &[OURS, POD]);
    let view = pass(&mut session, &unknown, &[]).await.unwrap();
    assert_eq!(view.extra_host_routes, nets(&[POD]));
    assert_eq!(session.state.memory().routes, nets(&[OURS, POD]));
    let changes = ["PATCH /localapi/v0/prefs", APPROVE];
    assert_eq!(changes.map(|call| fake.world().count(call)), [0, 0]);

    // When they are known, what is not among them goes.
    let known = settings(fake.config(), &[OURS]);
    let view = pass(&mut session, &known, &[]).await.unwrap();
    assert_eq!(view.extra_host_routes, []);
    assert_eq!(session.state.memory().routes, nets(&[OURS]));
    assert_eq!(fake.world().prefs["AdvertiseRoutes"], json!([OURS]));
    assert_eq!(fake.world().approved, [OURS]);
}

#[tokio::test]
async fn as_long_as_its_networks_are_not_known_the_way_to_others_stays() {
    const OTHERS: &str = "10.244.2.0/24";
    let fake = Fake::start(&[OURS]).await;
    let unknown = settings(fake.config(), &[]);
    let mut session = session(&fake, TailscaledMode::Managed, &unknown, &[OURS]);
    session.state.change(|it| it.meet(nets(&[OTHERS]))).unwrap();
    let view = pass(&mut session, &unknown, &[]).await.unwrap();
    assert_eq!(view.peer_routes, nets(&[OTHERS]));

    // When they are known, who is not there any more goes.
    let known = settings(fake.config(), &[OURS]);
    let view = pass(&mut session, &known, &[]).await.unwrap();
    assert_eq!(view.peer_routes, []);
}

#[tokio::test]
async fn what_was_advertised_to_be_heard_goes_though_networks_are_not_known() {
    let placeholder = PLACEHOLDER.to_string();
    let fake = Fake::start(&[OURS, &placeholder]).await;
    let unknown = settings(fake.config(), &[]);
    let mut session = session(
        &fake,
        TailscaledMode::Managed,
        &unknown,
        &[OURS, &placeholder],
    );
    pass(&mut session, &unknown, &[]).await.unwrap();
    assert_eq!(fake.world().prefs["AdvertiseRoutes"], json!([OURS]));
}

#[tokio::test]
async fn a_login_that_fails_is_not_tried_again_at_every_sign() {
    let fake = Fake::start(&[]).await;
    fake.world().state = "NeedsLogin";
    let mut config = fake.config();
    config.headscale.pre_auth_key_file = Some(fake.path("auth-key"));
    let settings = settings(config, &[OURS]);
    let mut session = session(&fake, TailscaledMode::Managed, &settings, &[]);
    for _ in 0..10 {
        assert_eq!(pass(&mut session, &settings, &[]).await, None);
    }
    assert_eq!(fake.world().tried, ["made-0"]);
    let why = told(&session, Condition::MeshJoined);
    assert!(!why.0 && why.1.contains("tailscaled"), "{why:?}");

    // Nobody has seen the key: it is good for another login.
    let tries = || fake.world().tried.len();
    until(&mut session, &settings, |_| tries() == 2).await;
    assert_eq!(fake.world().tried, ["made-0"; 2]);

    // One that is refused is of no use to anybody.
    fake.world().refusal = Some("authkey already used");
    until(&mut session, &settings, |_| tries() == 3).await;
    let expired = fake.world().count("POST /api/v1/preauthkey/expire");
    assert_eq!(expired, 1);
    let (_, why) = told(&session, Condition::MeshJoined);
    assert!(why.contains("already used: configure a new one"), "{why}");
    pass(&mut session, &settings, &[]).await;
    assert_eq!(told(&session, Condition::MeshJoined), (false, why));
    assert_eq!(tries(), 3);

    // Whoever is given a key does not wait.
    write_atomic(&fake.path("auth-key"), b"given", 0o600).unwrap();
    pass(&mut session, &settings, &[]).await;
    assert_eq!(fake.world().tried, ["made-0", "made-0", "made-0", "made-1"]);
}

#[tokio::test]
async fn what_others_advertise_and_approve_meanwhile_stays() {
    let fake = Fake::start(&[OURS]).await;
    let settings = settings(fake.config(), &[OURS]);
    let mut session = session(&fake, TailscaledMode::Host, &settings, &[OURS]);
    pass(&mut session, &settings, &[]).await.unwrap();
    // The list has just been read, and is not read again before the next change of ours.
    fake.world().approved.push(THEIRS.to_owned());
    fake.world().prefs["AdvertiseRoutes"] = json!([OURS, THEIRS]);
    pass(&mut session, &settings, &[POD]).await.unwrap();
    let all = [OURS, POD, THEIRS];
    assert_eq!(sorted(&json!(fake.world().approved)), all);
    assert_eq!(sorted(&fake.world().prefs["AdvertiseRoutes"]), all);
}

#[tokio::test]
async fn what_a_host_is_told_while_the_server_is_asked_stays() {
    let fake = Fake::start(&[]).await;
    let settings = settings(fake.config(), &[OURS]);
    let mut session = session(&fake, TailscaledMode::Host, &settings, &[]);
    fake.world().meddle = Some(|world| {
        world.prefs["AdvertiseRoutes"] = json!([THEIRS]);
    });
    pass(&mut session, &settings, &[]).await.unwrap();
    let advertised = sorted(&fake.world().prefs["AdvertiseRoutes"]);
    assert_eq!(advertised, [OURS, THEIRS]);
}

#[tokio::test]
async fn a_server_that_cannot_be_set_up_is_told_of_and_tried_again() {
    let fake = Fake::start(&[OURS]).await;
    let mut config = fake.config();
    config.headscale.ca_file = Some(fake.path("ca.pem"));
    let settings = settings(config, &[OURS]);
    let mut session = session(&fake, TailscaledMode::Managed, &settings, &[OURS]);
    pass(&mut session, &settings, &[]).await.unwrap();
    let (is_reachable, why) = told(&session, Condition::HeadscaleReachable);
    assert!(!is_reachable && why.contains("ca.pem"), "{why}");

    lab::certify([127, 0, 0, 1].into(), fake.files.path()).unwrap();
    until(&mut session, &settings, |session| {
        session.control.server.is_some()
    })
    .await;
    let (_, said) = told(&session, Condition::HeadscaleReachable);
    assert!(!said.contains("ca.pem"), "{said}");
}

#[tokio::test]
async fn shields_are_lowered_where_the_tailscaled_is_ours() {
    for (mode, stays) in [
        (TailscaledMode::Managed, false),
        (TailscaledMode::Host, true),
    ] {
        let fake = Fake::start(&[OURS]).await;
        fake.world().prefs["ShieldsUp"] = json!(true);
        let settings = settings(fake.config(), &[OURS]);
        let mut session = session(&fake, mode, &settings, &[OURS]);
        pass(&mut session, &settings, &[]).await.unwrap();
        assert_eq!(fake.world().prefs["ShieldsUp"], stays, "{mode:?}");
        let (_, said) = told(&session, Condition::RoutesServed);
        assert_eq!(said.contains("--shields-up=false"), stays, "{said}");
    }
}

#[tokio::test]
async fn a_node_that_knows_nothing_of_the_cluster_says_so() {
    let fake = Fake::start(&[OURS]).await;
    let mut config = fake.config();
    let mut unknown = settings(config.clone(), &[OURS]);
    unknown.pod_cidrs = Some(networks(&[OURS], OURS));
    let mut session = session(&fake, TailscaledMode::Managed, &unknown, &[OURS]);
    pass(&mut session, &unknown, &[]).await.unwrap();
    let (is_served, said) = told(&session, Condition::RoutesServed);
    assert!(
        !is_served && said.ends_with("set network.podCIDR.base"),
        "{said}"
    );

    config.network.pod_cidr.base.0 = nets(&[OURS]);
    let mut alone = settings(config, &[OURS]);
    alone.pod_cidrs.clone_from(&unknown.pod_cidrs);
    pass(&mut session, &alone, &[]).await.unwrap();
    assert!(told(&session, Condition::RoutesServed).0);
}

#[tokio::test]
async fn a_disk_that_takes_nothing_hides_no_news() {
    let fake = Fake::start(&[OURS]).await;
    let settings = settings(fake.config(), &[OURS]);
    let mut session = session(&fake, TailscaledMode::Managed, &settings, &[OURS]);
    let file = fake.path("mesh.json");
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    let view = pass(&mut session, &settings, &[]).await.unwrap();
    assert!(view.has_served);
    assert!(told(&session, Condition::MeshJoined).0);
    // It is written as soon as it can be.
    std::fs::remove_dir(&file).unwrap();
    pass(&mut session, &settings, &[]).await.unwrap();
    assert!(MeshStateFile::load(fake.files.path()).memory().has_served);
}

#[tokio::test]
async fn a_member_is_looked_at_twice_before_it_is_said_to_be_none() {
    let fake = Fake::start(&[OURS]).await;
    let settings = settings(fake.config(), &[OURS]);
    let mut session = session(&fake, TailscaledMode::Managed, &settings, &[OURS]);
    let mut is_member_after = async |is_silent| {
        fake.world().is_silent = is_silent;
        pass(&mut session, &settings, &[]).await;
        told(&session, Condition::MeshJoined).0
    };
    assert!(is_member_after(false).await);
    for is_silent in [true, false, true] {
        assert!(is_member_after(is_silent).await);
    }
    assert!(!is_member_after(true).await);
    assert!(is_member_after(false).await);
}

#[tokio::test]
async fn a_server_that_is_too_busy_is_not_asked_again_at_every_sign() {
    let fake = Fake::start(&[OURS]).await;
    let settings = settings(fake.config(), &[OURS]);
    let mut session = session(&fake, TailscaledMode::Managed, &settings, &[OURS]);
    pass(&mut session, &settings, &[]).await.unwrap();
    fake.world().busy = Some(APPROVE);
    // The list is read again because tailscaled was told otherwise, and because of what that made.
    for _ in 0..2 {
        pass(&mut session, &settings, &[POD]).await.unwrap();
    }
    let asked = || [APPROVE, LIST].map(|call| fake.world().count(call));
    let first = asked();
    assert_eq!(first[0], 1);
    for _ in 0..5 {
        pass(&mut session, &settings, &[POD]).await.unwrap();
        let (is_served, why) = told(&session, Condition::RoutesServed);
        assert!(!is_served && why.contains("approve routes"), "{why}");
    }
    assert_eq!(asked(), first);

    fake.world().busy = None;
    let limit = Instant::now() + Duration::from_mins(1);
    while !fake.world().approved.iter().any(|net| net == POD) {
        assert!(Instant::now() < limit, "it is not asked again");
        pass(&mut session, &settings, &[POD]).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (is_served, why) = told(&session, Condition::RoutesServed);
    assert!(is_served, "{why}");
}

/// A member that is offline, was there last so long ago, and has this node's network.
fn offline(name: &str, minutes: i64) -> Value {
    let observed = jiff::Timestamp::now() - jiff::SignedDuration::from_mins(minutes);
    json!({
        "id": "2", "nodeKey": "nodekey:cd", "name": name, "givenName": name, "online": false,
        "lastSeen": observed.to_string(), "tags": ["tag:k8s-node"], "ipAddresses": ["100.64.0.2"],
        "availableRoutes": [OURS], "approvedRoutes": [OURS],
    })
}

/// Whether a new node takes the place of another, once it has looked for long enough.
async fn replaces(other: Value, is_given: bool, meanwhile: impl FnOnce(&Fake)) -> bool {
    let fake = Fake::start(&[]).await;
    fake.world().others.push(other);
    let mut settings = settings(fake.config(), &[OURS]);
    if is_given {
        let facts = NodeFacts {
            assigned: nets(&[OURS]),
            ..NodeFacts::default()
        };
        settings.kube_nodes = Arc::new(KubeNodes {
            is_enabled: true,
            nodes: Some([("n1".to_owned(), facts)].into()),
        });
    }
    let mut session = session(&fake, TailscaledMode::Managed, &settings, &[]);
    pass(&mut session, &settings, &[]).await.unwrap();
    let why = told(&session, Condition::PodCidrUnique);
    assert!(!why.0 && why.1.contains("delete --identifier 2"), "{why:?}");
    assert_eq!(fake.world().approved, [""; 0]);

    let server = session.control.server.as_mut().unwrap();
    server.watch_for(Duration::from_mins(2));
    // Another look is due only if somebody is to be deleted.
    meanwhile(&fake);
    pass(&mut session, &settings, &[]).await.unwrap();
    let is_deleted = fake.world().count("DELETE /api/v1/node/2") == 1;
    let approved = fake.world().approved.clone();
    assert_eq!(approved == [OURS], is_deleted, "{approved:?}");
    is_deleted
}

#[tokio::test]
async fn only_who_is_gone_is_replaced_by_a_node_that_has_its_name_or_was_given_its_network() {
    let is_back = |fake: &Fake| fake.world().others[0]["online"] = json!(true);
    assert!(replaces(offline("n1", 6), false, |_| ()).await);
    assert!(!replaces(offline("n1", 4), false, |_| ()).await);
    assert!(!replaces(offline("n1", 6), false, is_back).await);
    assert!(replaces(offline("n7", 6), true, |_| ()).await);
    assert!(!replaces(offline("n7", 4), true, |_| ()).await);
    assert!(!replaces(offline("n7", 6), true, is_back).await);
    assert!(!replaces(offline("n7", 6), false, |_| ()).await);
}

#[tokio::test]
async fn what_our_own_tailscaled_was_before_is_replaced_as_soon_as_it_is_offline() {
    for (name, is_deleted) in [("n1", true), ("n7", false)] {
        let fake = Fake::start(&[]).await;
        fake.world().others.push(offline(name, 0));
        let settings = settings(fake.config(), &[OURS]);
        let mut session = session(&fake, TailscaledMode::Managed, &settings, &[]);
        session.state.change(|it| it.note_number(2)).unwrap();
        pass(&mut session, &settings, &[]).await.unwrap();
        let count = fake.world().count("DELETE /api/v1/node/2");
        assert_eq!(count, usize::from(is_deleted), "{name}");
        assert_eq!(session.state.memory().numbers, [2, 1]);
    }
}

#[tokio::test]
async fn who_served_first_is_known_after_a_restart() {
    let fake = Fake::start(&[OURS]).await;
    let settings = settings(fake.config(), &[OURS]);
    let mut session = session(&fake, TailscaledMode::Managed, &settings, &[OURS]);
    pass(&mut session, &settings, &[]).await.unwrap();
    assert_eq!(
        MeshStateFile::load(fake.files.path()).memory().served,
        nets(&[OURS])
    );

    // A thief comes while tailscaled starts, and gets the packets.
    let mut thief = offline("thief", 0);
    thief["online"] = json!(true);
    thief["subnetRoutes"] = json!([OURS]);
    fake.world().others.push(thief);
    fake.world().state = "Starting";
    session.control.server.as_mut().unwrap().forget();
    pass(&mut session, &settings, &[]).await.unwrap();
    assert_eq!(fake.world().prefs["AdvertiseRoutes"], json!([OURS]));
    assert_eq!(fake.world().approved, [OURS]);
    let (is_unique, why) = told(&session, Condition::PodCidrUnique);
    assert!(
        !is_unique && why.contains("thief also advertises 10.244.1.0/24"),
        "{why}"
    );
}

/// As if it had been on its way for so many minutes.
fn wait_minutes(session: &mut Membership, minutes: u64) {
    let since = session.connection.starting_since.as_mut().unwrap();
    *since = since.checked_sub(Duration::from_mins(minutes)).unwrap();
}

#[tokio::test]
async fn a_member_that_is_slow_to_connect_is_not_logged_in_anew() {
    let fake = Fake::start(&[OURS]).await;
    for config in [fake.config(), fake.config_without_api_key()] {
        (fake.world().state, fake.world().reconnects) = ("Starting", 0);
        let settings = settings(config, &[OURS]);
        let mut session = session(&fake, TailscaledMode::Managed, &settings, &[OURS]);
        // Less and less often: each time it begins from the beginning.
        for (minutes, reconnects) in [(0, 0), (1, 1), (1, 1), (1, 2), (3, 2), (1, 3)] {
            pass(&mut session, &settings, &[]).await;
            wait_minutes(&mut session, minutes);
            pass(&mut session, &settings, &[]).await;
            assert_eq!(fake.world().reconnects, reconnects);
            // It connects anew, and is on its way again.
            pass(&mut session, &settings, &[]).await;
        }
        fake.world().state = "Running";
        pass(&mut session, &settings, &[]).await;
        assert!(told(&session, Condition::MeshJoined).0);
        assert_eq!(fake.world().tried, [""; 0]);
    }
}

#[tokio::test]
async fn who_hears_nobody_and_cannot_read_the_list_asks_whether_it_is_a_member() {
    let fake = Fake::start(&[OURS]).await;
    let settings = settings(fake.config_without_api_key(), &[OURS]);
    let mut session = session(&fake, TailscaledMode::Managed, &settings, &[OURS]);
    pass(&mut session, &settings, &[]).await;
    assert_eq!(fake.world().reconnects, 0);
    session.peers.is_silent = true;
    for _ in 0..2 {
        pass(&mut session, &settings, &[]).await;
        assert_eq!(fake.world().reconnects, 1);
        assert!(told(&session, Condition::MeshJoined).0);
    }
    // A login follows only if it is none.
    assert_eq!(fake.world().tried, [""; 0]);
    fake.world().is_forgotten = true;
    for _ in 0..2 {
        pass(&mut session, &settings, &[]).await;
    }
    assert!(!told(&session, Condition::MeshJoined).0);
    assert_eq!(fake.world().tried, ["given"]);
}

#[tokio::test]
async fn who_reads_the_list_or_has_a_tailscaled_of_the_hosts_connects_nothing_anew() {
    let fake = Fake::start(&[OURS]).await;
    let (listed, unlisted) = (fake.config(), fake.config_without_api_key());
    for (mode, config) in [
        (TailscaledMode::Managed, listed),
        (TailscaledMode::Host, unlisted),
    ] {
        let settings = settings(config, &[OURS]);
        let mut session = session(&fake, mode, &settings, &[OURS]);
        session.peers.is_silent = true;
        pass(&mut session, &settings, &[]).await;
    }
    assert_eq!(fake.world().reconnects, 0);
}

#[tokio::test]
async fn a_server_that_is_too_old_is_not_joined_whatever_key_there_is() {
    let fake = Fake::start(&[OURS]).await;
    fake.world().version = "v0.25.1";
    let settings = settings(fake.config_without_api_key(), &[OURS]);
    let mut session = session(&fake, TailscaledMode::Managed, &settings, &[OURS]);
    // A member stays one.
    pass(&mut session, &settings, &[]).await;
    assert!(told(&session, Condition::MeshJoined).0);
    assert!(!told(&session, Condition::HeadscaleReachable).0);
    fake.world().state = "NeedsLogin";
    for _ in 0..2 {
        pass(&mut session, &settings, &[]).await;
    }
    let (is_member, why) = told(&session, Condition::MeshJoined);
    let words = ["0.25.1", "upgrade it to 0.26 or newer"];
    assert!(
        !is_member && words.iter().all(|word| why.contains(word)),
        "{why}"
    );
    assert_eq!(fake.world().tried, [""; 0]);
}

#[tokio::test]
async fn why_no_key_could_be_made_is_told_with_what_became_of_the_given_one() {
    let fake = Fake::start(&[OURS]).await;
    let mut config = fake.config_without_api_key();
    config.headscale.api_key_file = fake.config().headscale.api_key_file;
    (fake.world().state, fake.world().makes_keys) = ("NeedsLogin", false);
    fake.world().refusal = Some("authkey already used");
    let settings = settings(config, &[OURS]);
    let mut session = session(&fake, TailscaledMode::Managed, &settings, &[OURS]);
    pass(&mut session, &settings, &[]).await;
    let (_, why) = told(&session, Condition::MeshJoined);
    let words = [
        "already used: configure a new one",
        "none can be created: ",
        "pre-auth key",
    ];
    assert!(words.iter().all(|word| why.contains(word)), "{why}");
    assert_eq!(fake.world().tried, ["given"]);
}

#[tokio::test]
async fn each_daemon_tells_how_long_it_took_until_the_mesh_served() {
    let fake = Fake::start(&[OURS]).await;
    let settings = settings(fake.config(), &[OURS]);
    for has_served in [false, true] {
        let mut session = session(&fake, TailscaledMode::Managed, &settings, &[OURS]);
        assert_eq!(session.state.memory().has_served, has_served);
        pass(&mut session, &settings, &[]).await;
        let first = session.telemetry.metrics.mesh.time_to_serve.get();
        assert!(first > 0.0);
        pass(&mut session, &settings, &[]).await;
        let later = session.telemetry.metrics.mesh.time_to_serve.get();
        assert!(first.to_bits() == later.to_bits(), "{first}, then {later}");
    }
}
