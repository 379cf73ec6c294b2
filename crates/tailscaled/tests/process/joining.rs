//! Keys that are good, and keys that are not.

use std::time::Duration;

use tailscaled::localapi::{AuthKey, JoinError, Refusal, Start, State};

use crate::scene::{PATIENCE, Place, World, answers, new_key, open_policy, start, until, usual};

const ROUTE: &str = "10.244.1.0/24";

#[tokio::test]
async fn a_bad_key_is_named_and_a_good_one_works_afterwards() {
    let world = World::new();
    let server = world.headscale();
    server.set_policy(&open_policy()).unwrap();
    let places = [0, 1].map(|nth| Place::new(&world.nodes[nth], Some(&server)));
    let mut supervisors = places.each_ref().map(Place::supervisor);
    for (place, supervisor) in places.iter().zip(&mut supervisors) {
        supervisor.ensure().await.unwrap();
        answers(&place.api()).await;
    }
    let [first, second] = places.each_ref().map(Place::api);
    let (used, _) = new_key(&server);
    let using = |key: &str| start(&server, key, usual("n", ROUTE));
    first.join(&using(&used), PATIENCE).await.unwrap();

    let refusal = |outcome: Result<(), JoinError>| match outcome {
        Err(JoinError::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    };
    let again = second.join(&using(&used), PATIENCE).await;
    assert_eq!(refusal(again), Refusal::KeyUsed);
    // The same error as before is an error of this try as well.
    let again = second.join(&using(&used), PATIENCE).await;
    assert_eq!(refusal(again), Refusal::KeyUsed);

    let (expired, id) = new_key(&server);
    server.cli(["preauthkeys", "expire", "-i", &id]).unwrap();
    let outcome = second.join(&using(&expired), PATIENCE).await;
    assert_eq!(refusal(outcome), Refusal::KeyExpired);

    let unknown = format!("hskey-auth-AAAAAAAAAAAA-{}", "A".repeat(64));
    for strange in [unknown.as_str(), "hskey-auth-short", "nonsense"] {
        let outcome = second.join(&using(strange), PATIENCE).await;
        assert_eq!(refusal(outcome), Refusal::KeyUnknown, "{strange}");
    }

    let (good, _) = new_key(&server);
    second.join(&using(&good), PATIENCE).await.unwrap();

    // When the server lets its key expire, a new one brings the node back as who it was.
    let before = second.status().await.unwrap();
    let id = before.this.node_id.unwrap().to_string();
    server.cli(["nodes", "expire", "-i", &id]).unwrap();
    until("it has to log in again", async || {
        let status = second.status().await.unwrap();
        (status.state == State::NeedsLogin).then_some(())
    })
    .await;
    let (fresh, _) = new_key(&server);
    second.join(&using(&fresh), PATIENCE).await.unwrap();
    let after = second.status().await.unwrap();
    assert_eq!(after.state, State::Running);
    assert_eq!(after.this.addresses, before.this.addresses);

    // On one that runs, it is not the old state that counts.
    let (fresh, _) = new_key(&server);
    second.join(&using(&fresh), PATIENCE).await.unwrap();

    // One that the server has forgotten says that it runs; the server knows the one that comes back.
    let id = second
        .status()
        .await
        .unwrap()
        .this
        .node_id
        .unwrap()
        .to_string();
    server
        .cli(["nodes", "delete", "-i", &id, "--force"])
        .unwrap();
    let (anew, _) = new_key(&server);
    second.join(&using(&anew), PATIENCE).await.unwrap();
    until("the server lists it", async || {
        let status = second.status().await.unwrap();
        let listed = server
            .cli(["nodes", "list", "-o", "json"])
            .unwrap()
            .to_string();
        let is_running = status.state == State::Running;
        (is_running && listed.contains(&status.this.key)).then_some(())
    })
    .await;

    for place in &places {
        let said = place.log() + &format!("{:?}", place.api().prefs().await.unwrap());
        let mut written = Vec::new();
        for entry in std::fs::read_dir(&place.settings.state_dir).unwrap() {
            let path = entry.unwrap().path();
            written.extend(std::fs::read(path).unwrap_or_default());
        }
        let all = said + &String::from_utf8_lossy(&written);
        for key in [&used, &expired, &good, &fresh, &anew] {
            assert!(!all.contains(key.as_str()), "a key was kept");
        }
        for pid in place.pids() {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
            let line = String::from_utf8_lossy(&line);
            assert!(!line.contains("hskey"), "{line}");
        }
    }
}

#[tokio::test]
async fn a_member_that_connects_anew_learns_whether_it_is_one() {
    let world = World::new();
    let server = world.headscale();
    server.set_policy(&open_policy()).unwrap();
    let place = Place::new(&world.nodes[0], Some(&server));
    let mut supervisor = place.supervisor();
    supervisor.ensure().await.unwrap();
    let api = place.api();
    answers(&api).await;
    let join = async || {
        let (key, _) = new_key(&server);
        let start = start(&server, &key, usual("n1", ROUTE));
        api.join(&start, PATIENCE).await.unwrap();
        let status = api.status().await.unwrap();
        assert_eq!(
            (status.state, status.this.is_online),
            (State::Running, true)
        );
        status.this
    };
    let member = join().await;
    api.reconnect(PATIENCE).await.unwrap();
    let after = api.status().await.unwrap();
    assert_eq!(
        (after.state.clone(), &after.this.key),
        (State::Running, &member.key)
    );
    assert!(!after.is_turned_away(), "{after:?}");

    let id = member.node_id.unwrap().to_string();
    let delete = ["nodes", "delete", "-i", &id, "--force"];
    server.cli(delete).unwrap();
    assert!(!api.status().await.unwrap().is_turned_away());
    api.reconnect(PATIENCE).await.unwrap();
    let after = api.status().await.unwrap();
    assert!(after.is_turned_away(), "{after:?}");
    // A key that is good for one login is enough, each time.
    assert_ne!(join().await.node_id, member.node_id);
    join().await;
}

#[tokio::test]
async fn a_server_that_is_away_is_waited_for_and_told_of() {
    let world = World::new();
    let mut server = world.headscale();
    let place = Place::new(&world.nodes[0], Some(&server));
    let mut supervisor = place.supervisor();
    supervisor.ensure().await.unwrap();
    answers(&place.api()).await;
    let (key, _) = new_key(&server);
    server.kill().unwrap();
    let start = start(&server, &key, usual("n1", ROUTE));
    let short = Duration::from_secs(5);
    let error = place.api().join(&start, short).await.unwrap_err();
    assert!(matches!(error, JoinError::Late { .. }), "{error}");
    assert!(error.to_string().contains("not within 5s"), "{error}");

    // It goes on trying by itself.
    server.restart().unwrap();
    until("it has joined", async || {
        let status = place.api().status().await.unwrap();
        (status.state == State::Running).then_some(())
    })
    .await;

    // Without a key, somebody has to come.
    place.api().logout().await.unwrap();
    let without = Start {
        auth_key: None,
        ..start
    };
    let error = place.api().join(&without, PATIENCE).await.unwrap_err();
    let JoinError::NeedsPerson { url } = error else {
        panic!("{error}")
    };
    assert!(url.starts_with(&server.url()), "{url}");
    // Or a key.
    let with = Start {
        auth_key: Some(AuthKey::new(new_key(&server).0)),
        ..without
    };
    place.api().join(&with, PATIENCE).await.unwrap();
}
