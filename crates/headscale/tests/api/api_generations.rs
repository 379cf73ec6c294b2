//! Calls that need no node, against every API generation.

use headscale::{
    ApiKey, Client, ErrorKind, Generation, KeyUses, NewPreAuthKey, NodeLifetime, Secret,
    ServerVersion,
};
use jiff::{SignedDuration, Timestamp};
use lab::tools::{GoModule, HEADSCALES};
use rstest::rstest;

use crate::harness::{inside, nodes, start};

const TAG: &str = "tag:k8s-node";

fn new_key(user: Option<u64>) -> NewPreAuthKey {
    NewPreAuthKey {
        user,
        tags: vec![TAG.to_owned()],
        uses: KeyUses::Once,
        nodes: NodeLifetime::Permanent,
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
fn users_keys_and_policies_work_in_every_generation(
    #[case] version: GoModule,
    #[case] generation: Generation,
) {
    let (node, _peer) = nodes();
    let (_headscale, access) = start(&node, &version);
    inside(&node, async || {
        let client = access.client();
        check_version(&client, generation, &version).await;
        check_users_and_pre_auth_keys(&client, generation).await;
        check_policy(&client, generation).await;
        check_api_keys(&client, &Secret::new(&access.api_key)).await;
        check_wrong_keys(&client).await;
    });
}

async fn check_version(client: &Client, generation: Generation, version: &GoModule) {
    client.health().await.unwrap();
    let ServerVersion {
        generation: found,
        text,
    } = client.version().await.unwrap();
    assert_eq!(found, generation);
    // A build outside the repository may not know its version.
    if let Some(text) = text {
        assert_eq!(format!("v{text}"), version.version);
    }
    let ahead = client
        .clock()
        .expect("responses have a Date header")
        .local_ahead();
    assert!(ahead.abs() < SignedDuration::from_secs(60), "{ahead:?}");
}

async fn check_users_and_pre_auth_keys(client: &Client, generation: Generation) {
    assert_eq!(client.users().await.unwrap(), []);
    assert_eq!(client.user("lab").await.unwrap(), None);
    let user = client.create_user("lab").await.unwrap();
    client.create_user("lab2").await.unwrap();
    assert_eq!(client.user("lab").await.unwrap().unwrap().id, user.id);
    assert_eq!(client.users().await.unwrap().len(), 2);
    let error = client.create_user("lab").await.unwrap_err();
    assert!(!error.is_retryable(), "{error:?}");

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
            matches!(error.kind(), ErrorKind::Unsupported { .. }),
            "{error:?}"
        );
        assert!(error.to_string().ends_with("set headscale.user"), "{error}");
    }
}

async fn check_policy(client: &Client, generation: Generation) {
    const POLICY: &str = r#"{ // for all
        "acls": [{"action": "accept", "src": ["*"], "dst": ["*:*"]}] }"#;
    const BAD: &str = r#"{"acls": [{"action": "invalid", "src": ["*"], "dst": ["*:*"]}]}"#;
    const UNKNOWN_TAG: &str =
        r#"{"acls": [{"action": "accept", "src": ["tag:unowned"], "dst": ["*:*"]}]}"#;
    assert_eq!(client.policy().await.unwrap(), None);
    if generation >= Generation::V0_29 {
        client.check_policy(POLICY).await.unwrap();
        let error = client.check_policy(BAD).await.unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Refused { .. }),
            "{error:?}"
        );
    } else {
        let error = client.check_policy(POLICY).await.unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Unsupported { .. }),
            "{error:?}"
        );
    }
    assert_eq!(client.policy().await.unwrap(), None, "a check sets nothing");
    let error = client.set_policy(BAD).await.unwrap_err();
    let ErrorKind::Refused {
        code: Some(_),
        message,
        ..
    } = error.kind()
    else {
        panic!("{error:?}");
    };
    assert!(message.starts_with("setting policy: "), "{message}");
    // A tag that is missing in the policy is not a missing policy.
    let error = client.set_policy(UNKNOWN_TAG).await.unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Refused { .. }),
        "{error:?}"
    );
    client.set_policy(POLICY).await.unwrap();
    assert_eq!(client.policy().await.unwrap().as_deref(), Some(POLICY));
}

async fn check_api_keys(client: &Client, own: &Secret) {
    let prefix = ApiKey::prefix_of(own).unwrap();
    let keys = client.api_keys().await.unwrap();
    let ours = keys
        .iter()
        .find(|key| key.prefix == prefix)
        .expect("our key is in the list");
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
    assert_eq!(error.kind(), &ErrorKind::Unauthorized);
    client.users().await.unwrap();
}

/// Every wrong key gives the same error, which does not contain the key.
async fn check_wrong_keys(client: &Client) {
    let long = "q".repeat(64);
    for wrong in [
        "invalid".to_owned(),
        "abcdefg.hijklmnopq".to_owned(),
        format!("hskey-api-abcdefghijkl-{long}"),
    ] {
        let unauthorized = client.with_api_key(&Secret::new(&wrong)).unwrap();
        let error = unauthorized.nodes().await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Unauthorized, "{wrong}");
        let shown = format!("{error} {error:?} {unauthorized:?}");
        assert!(!shown.contains(&wrong), "{shown}");
    }
}
