//! Logins with valid and invalid pre-auth keys.

use std::time::Duration;

use tailscaled::localapi::{AuthKey, BackendState, JoinError, LoginError, StartOptions};

use crate::harness::{
    DEADLINE, Lab, TailscaledFixture, await_ready, new_key, node_prefs, open_policy, start, until,
};

const ROUTE: &str = "10.244.1.0/24";

#[tokio::test]
async fn an_invalid_key_is_classified_and_a_valid_one_works_afterwards() {
    let lab = Lab::new();
    let server = lab.headscale();
    server.set_policy(&open_policy()).unwrap();
    let tailscaleds = [0, 1].map(|nth| TailscaledFixture::new(&lab.nodes[nth], Some(&server)));
    let mut supervisors = tailscaleds.each_ref().map(TailscaledFixture::supervisor);
    for (tailscaled, supervisor) in tailscaleds.iter().zip(&mut supervisors) {
        supervisor.ensure().await.unwrap();
        await_ready(&tailscaled.api()).await;
    }
    let [first, second] = tailscaleds.each_ref().map(TailscaledFixture::api);
    let (used, _) = new_key(&server);
    let using = |key: &str| start(&server, key, node_prefs("n", ROUTE));
    first.join(&using(&used), DEADLINE).await.unwrap();

    let login_error = |outcome: Result<(), JoinError>| match outcome {
        Err(JoinError::Login(error)) => error,
        other => panic!("{other:?}"),
    };
    let again = second.join(&using(&used), DEADLINE).await;
    assert_eq!(login_error(again), LoginError::KeyUsed);
    // The same error is reported for a second attempt too.
    let again = second.join(&using(&used), DEADLINE).await;
    assert_eq!(login_error(again), LoginError::KeyUsed);

    let (expired, id) = new_key(&server);
    server.cli(["preauthkeys", "expire", "-i", &id]).unwrap();
    let outcome = second.join(&using(&expired), DEADLINE).await;
    assert_eq!(login_error(outcome), LoginError::KeyExpired);

    let unknown = format!("hskey-auth-AAAAAAAAAAAA-{}", "A".repeat(64));
    for invalid in [unknown.as_str(), "hskey-auth-short", "nonsense"] {
        let outcome = second.join(&using(invalid), DEADLINE).await;
        assert_eq!(login_error(outcome), LoginError::KeyUnknown, "{invalid}");
    }

    let (good, _) = new_key(&server);
    second.join(&using(&good), DEADLINE).await.unwrap();

    // After its node key expired, a new pre-auth key restores the same node.
    let before = second.status().await.unwrap();
    let id = before.self_node.node_id.unwrap().to_string();
    server.cli(["nodes", "expire", "-i", &id]).unwrap();
    until("tailscaled needs a login", async || {
        let status = second.status().await.unwrap();
        (status.state == BackendState::NeedsLogin).then_some(())
    })
    .await;
    let (fresh, _) = new_key(&server);
    second.join(&using(&fresh), DEADLINE).await.unwrap();
    let after = second.status().await.unwrap();
    assert_eq!(after.state, BackendState::Running);
    assert_eq!(after.self_node.addresses, before.self_node.addresses);

    // A join of a running node does not return with the old state.
    let (fresh, _) = new_key(&server);
    second.join(&using(&fresh), DEADLINE).await.unwrap();

    // A node that Headscale deleted still reports Running. After a new join Headscale lists it again.
    let id = second
        .status()
        .await
        .unwrap()
        .self_node
        .node_id
        .unwrap()
        .to_string();
    server
        .cli(["nodes", "delete", "-i", &id, "--force"])
        .unwrap();
    let (anew, _) = new_key(&server);
    second.join(&using(&anew), DEADLINE).await.unwrap();
    until("Headscale lists the node", async || {
        let status = second.status().await.unwrap();
        let listed = server
            .cli(["nodes", "list", "-o", "json"])
            .unwrap()
            .to_string();
        let is_running = status.state == BackendState::Running;
        (is_running && listed.contains(&status.self_node.public_key)).then_some(())
    })
    .await;

    for tailscaled in &tailscaleds {
        let output = tailscaled.log() + &format!("{:?}", tailscaled.api().prefs().await.unwrap());
        let mut written = Vec::new();
        for entry in std::fs::read_dir(&tailscaled.spec.state_dir).unwrap() {
            let path = entry.unwrap().path();
            written.extend(std::fs::read(path).unwrap_or_default());
        }
        let all = output + &String::from_utf8_lossy(&written);
        for key in [&used, &expired, &good, &fresh, &anew] {
            assert!(!all.contains(key.as_str()), "a key was stored or logged");
        }
        for pid in tailscaled.pids() {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
            let line = String::from_utf8_lossy(&line);
            assert!(!line.contains("hskey"), "{line}");
        }
    }
}

#[tokio::test]
async fn a_reconnect_shows_whether_headscale_deleted_the_node() {
    let lab = Lab::new();
    let server = lab.headscale();
    server.set_policy(&open_policy()).unwrap();
    let tailscaled = TailscaledFixture::new(&lab.nodes[0], Some(&server));
    let mut supervisor = tailscaled.supervisor();
    supervisor.ensure().await.unwrap();
    let api = tailscaled.api();
    await_ready(&api).await;
    let join = async || {
        let (key, _) = new_key(&server);
        let start = start(&server, &key, node_prefs("n1", ROUTE));
        api.join(&start, DEADLINE).await.unwrap();
        let status = api.status().await.unwrap();
        assert_eq!(
            (status.state, status.self_node.is_online),
            (BackendState::Running, true)
        );
        status.self_node
    };
    let node = join().await;
    api.reconnect(DEADLINE).await.unwrap();
    let after = api.status().await.unwrap();
    assert_eq!(
        (after.state.clone(), &after.self_node.public_key),
        (BackendState::Running, &node.public_key)
    );
    assert!(!after.is_rejected_by_control(), "{after:?}");

    let id = node.node_id.unwrap().to_string();
    let delete = ["nodes", "delete", "-i", &id, "--force"];
    server.cli(delete).unwrap();
    assert!(!api.status().await.unwrap().is_rejected_by_control());
    api.reconnect(DEADLINE).await.unwrap();
    let after = api.status().await.unwrap();
    assert!(after.is_rejected_by_control(), "{after:?}");
    // A single-use key is enough for each join.
    assert_ne!(join().await.node_id, node.node_id);
    join().await;
}

#[tokio::test]
async fn a_join_times_out_and_tailscaled_continues_to_retry() {
    let lab = Lab::new();
    let mut server = lab.headscale();
    let tailscaled = TailscaledFixture::new(&lab.nodes[0], Some(&server));
    let mut supervisor = tailscaled.supervisor();
    supervisor.ensure().await.unwrap();
    await_ready(&tailscaled.api()).await;
    let (key, _) = new_key(&server);
    server.kill().unwrap();
    let start = start(&server, &key, node_prefs("n1", ROUTE));
    let short = Duration::from_secs(5);
    let error = tailscaled.api().join(&start, short).await.unwrap_err();
    assert!(matches!(error, JoinError::Timeout { .. }), "{error}");
    assert!(error.to_string().contains("within 5s"), "{error}");

    // tailscaled retries without us.
    server.restart().unwrap();
    until("the node has joined", async || {
        let status = tailscaled.api().status().await.unwrap();
        (status.state == BackendState::Running).then_some(())
    })
    .await;

    // Without a key the login is interactive.
    tailscaled.api().logout().await.unwrap();
    let without = StartOptions {
        auth_key: None,
        ..start
    };
    let error = tailscaled.api().join(&without, DEADLINE).await.unwrap_err();
    let JoinError::NeedsInteractiveLogin { url } = error else {
        panic!("{error}")
    };
    assert!(url.starts_with(&server.url()), "{url}");
    // Or with a key.
    let with = StartOptions {
        auth_key: Some(AuthKey::new(new_key(&server).0)),
        ..without
    };
    tailscaled.api().join(&with, DEADLINE).await.unwrap();
}
