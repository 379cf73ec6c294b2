//! What every generation of the server can be asked without a node.

use headscale::{ApiKey, Client, Generation, Lifetime, NewKey, Problem, Secret, Uses, Version};
use jiff::{SignedDuration, Timestamp};
use lab::tools::{GoModule, HEADSCALES};
use rstest::rstest;

use crate::stage::{inside, nodes, start};

const TAG: &str = "tag:k8s-node";

fn new_key(user: Option<u64>) -> NewKey {
    NewKey {
        user,
        tags: vec![TAG.to_owned()],
        uses: Uses::Once,
        nodes: Lifetime::Lasting,
        expiration: in_an_hour(),
    }
}

fn in_an_hour() -> Timestamp {
    Timestamp::now() + SignedDuration::from_hours(1)
}

#[rstest]
#[case::v0_29(HEADSCALES[0], Generation::V0_29)]
#[case::v0_28(HEADSCALES[1], Generation::V0_28)]
#[case::v0_27(HEADSCALES[2], Generation::V0_27)]
#[case::v0_26(HEADSCALES[3], Generation::V0_26)]
fn every_generation_is_spoken_to(#[case] version: GoModule, #[case] generation: Generation) {
    let (node, _peer) = nodes();
    let (_headscale, access) = start(&node, &version);
    inside(&node, async || {
        let client = access.client();
        tells_who_it_is(&client, generation, &version).await;
        has_users_and_pre_auth_keys(&client, generation).await;
        has_a_policy(&client, generation).await;
        has_api_keys(&client, &Secret::new(&access.api_key)).await;
        knows_its_keys(&client).await;
    });
}

async fn tells_who_it_is(client: &Client, generation: Generation, version: &GoModule) {
    client.health().await.unwrap();
    let Version {
        generation: found,
        text,
    } = client.version().await.unwrap();
    assert_eq!(found, generation);
    // One that was built elsewhere than in its repository may not know it.
    if let Some(text) = text {
        assert_eq!(format!("v{text}"), version.version);
    }
    let ahead = client.clock().expect("answers have a date").local_ahead();
    assert!(ahead.abs() < SignedDuration::from_secs(60), "{ahead:?}");
}

async fn has_users_and_pre_auth_keys(client: &Client, generation: Generation) {
    assert_eq!(client.users().await.unwrap(), []);
    assert_eq!(client.user("lab").await.unwrap(), None);
    let user = client.create_user("lab").await.unwrap();
    client.create_user("lab2").await.unwrap();
    assert_eq!(client.user("lab").await.unwrap().unwrap().id, user.id);
    assert_eq!(client.users().await.unwrap().len(), 2);
    let error = client.create_user("lab").await.unwrap_err();
    assert!(!error.is_transient(), "{error:?}");

    let key = client
        .create_pre_auth_key(&new_key(Some(user.id)))
        .await
        .unwrap();
    assert!(key.key.expose().len() > 20);
    assert_eq!(key.tags, [TAG]);
    assert!(!key.is_used && !key.is_reusable && !key.is_ephemeral);
    let listed = client.pre_auth_keys(user.id).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].id, &listed[0].tags), (key.id, &key.tags));
    let shows_all = listed[0].key == key.key;
    assert_eq!(shows_all, generation < Generation::V0_28);
    client.expire_pre_auth_key(&key).await.unwrap();
    let listed = client.pre_auth_keys(user.id).await.unwrap();
    assert!(listed[0].expiration.unwrap() <= Timestamp::now() + SignedDuration::from_secs(5));

    let without_user = client.create_pre_auth_key(&new_key(None)).await;
    if generation >= Generation::V0_28 {
        assert_eq!(without_user.unwrap().tags, [TAG]);
    } else {
        let error = without_user.unwrap_err();
        assert!(
            matches!(error.problem(), Problem::Unsupported { .. }),
            "{error:?}"
        );
        assert!(error.to_string().ends_with("set headscale.user"), "{error}");
    }
}

async fn has_a_policy(client: &Client, generation: Generation) {
    const POLICY: &str = r#"{ // for all
        "acls": [{"action": "accept", "src": ["*"], "dst": ["*:*"]}] }"#;
    const BAD: &str = r#"{"acls": [{"action": "dance", "src": ["*"], "dst": ["*:*"]}]}"#;
    const STRANGE: &str =
        r#"{"acls": [{"action": "accept", "src": ["tag:nobodys"], "dst": ["*:*"]}]}"#;
    assert_eq!(client.policy().await.unwrap(), None);
    if generation >= Generation::V0_29 {
        client.check_policy(POLICY).await.unwrap();
        let error = client.check_policy(BAD).await.unwrap_err();
        assert!(
            matches!(error.problem(), Problem::Refused { .. }),
            "{error:?}"
        );
    } else {
        let error = client.check_policy(POLICY).await.unwrap_err();
        assert!(
            matches!(error.problem(), Problem::Unsupported { .. }),
            "{error:?}"
        );
    }
    assert_eq!(client.policy().await.unwrap(), None, "a check sets nothing");
    let error = client.set_policy(BAD).await.unwrap_err();
    let Problem::Refused {
        code: Some(_),
        message,
        ..
    } = error.problem()
    else {
        panic!("{error:?}");
    };
    assert!(message.starts_with("setting policy: "), "{message}");
    // What is missing in a policy is no policy that is missing.
    let error = client.set_policy(STRANGE).await.unwrap_err();
    assert!(
        matches!(error.problem(), Problem::Refused { .. }),
        "{error:?}"
    );
    client.set_policy(POLICY).await.unwrap();
    assert_eq!(client.policy().await.unwrap().as_deref(), Some(POLICY));
}

async fn has_api_keys(client: &Client, own: &Secret) {
    let prefix = ApiKey::prefix_of(own).unwrap();
    let keys = client.api_keys().await.unwrap();
    let ours = keys
        .iter()
        .find(|key| key.prefix == prefix)
        .expect("ours is in the list");
    let left = ours.expiration.unwrap().duration_since(Timestamp::now());
    assert!(left > SignedDuration::from_hours(23), "{left:?}");

    let new = client.create_api_key(in_an_hour()).await.unwrap();
    let new_prefix = ApiKey::prefix_of(&new).unwrap();
    let renewed = client.with_api_key(&new).unwrap();
    assert!(
        renewed
            .api_keys()
            .await
            .unwrap()
            .iter()
            .any(|key| key.prefix == new_prefix)
    );
    client.expire_api_key(new_prefix).await.unwrap();
    let error = renewed.users().await.unwrap_err();
    assert_eq!(error.problem(), &Problem::Unauthorized);
    client.users().await.unwrap();
}

/// All that is wrong with a key ends in the same words, and never shows it.
async fn knows_its_keys(client: &Client) {
    let long = "q".repeat(64);
    for wrong in [
        "nokeyatall".to_owned(),
        "abcdefg.hijklmnopq".to_owned(),
        format!("hskey-api-abcdefghijkl-{long}"),
    ] {
        let stranger = client.with_api_key(&Secret::new(&wrong)).unwrap();
        let error = stranger.nodes().await.unwrap_err();
        assert_eq!(error.problem(), &Problem::Unauthorized, "{wrong}");
        let shown = format!("{error} {error:?} {stranger:?}");
        assert!(!shown.contains(&wrong), "{shown}");
    }
}
