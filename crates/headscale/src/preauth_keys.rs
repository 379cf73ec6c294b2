//! Pre-auth keys, with which nodes join.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use serde_json::json;

use crate::client::Client;
use crate::error::{Error, ErrorKind};
use crate::generation::Generation;
use crate::request::ApiRequest;
use crate::secret::Secret;
use crate::users::User;
use crate::wire::{self, Empty};

/// A key to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPreAuthKey {
    /// The id of the user. Required before 0.28; since then a key with tags needs none.
    pub user: Option<u64>,
    pub tags: Vec<String>,
    pub uses: KeyUses,
    pub nodes: NodeLifetime,
    /// Required: Headscale's default is a key that has expired already.
    pub expiration: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyUses {
    Once,
    Reusable,
}

/// How long Headscale keeps the nodes that join with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeLifetime {
    Permanent,
    /// Deleted when the node is offline.
    Ephemeral,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreAuthKey {
    #[serde(deserialize_with = "wire::uint64")]
    pub id: u64,
    /// Since 0.28 only the response to its creation contains the whole key.
    #[serde(deserialize_with = "secret")]
    pub key: Secret,
    pub user: Option<User>,
    #[serde(rename = "reusable", default, deserialize_with = "wire::or_default")]
    pub is_reusable: bool,
    #[serde(rename = "ephemeral", default, deserialize_with = "wire::or_default")]
    pub is_ephemeral: bool,
    #[serde(rename = "used", default, deserialize_with = "wire::or_default")]
    pub is_used: bool,
    #[serde(default, deserialize_with = "wire::time")]
    pub expiration: Option<Timestamp>,
    #[serde(default, deserialize_with = "wire::time")]
    pub created_at: Option<Timestamp>,
    #[serde(rename = "aclTags", default, deserialize_with = "wire::or_default")]
    pub tags: Vec<String>,
}

fn secret<'de, D: Deserializer<'de>>(input: D) -> Result<Secret, D::Error> {
    Ok(Secret::new(String::deserialize(input)?))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OneKey {
    pre_auth_key: PreAuthKey,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeysJson {
    #[serde(default, deserialize_with = "wire::or_default")]
    pre_auth_keys: Vec<PreAuthKey>,
}

impl Client {
    pub async fn create_pre_auth_key(&self, new: &NewPreAuthKey) -> Result<PreAuthKey, Error> {
        const OPERATION: &str = "create a pre-auth key";
        let mut body = json!({
            "aclTags": new.tags,
            "reusable": new.uses == KeyUses::Reusable,
            "ephemeral": new.nodes == NodeLifetime::Ephemeral,
            "expiration": new.expiration.to_string(),
        });
        if let Some(user) = new.user {
            body["user"] = user.to_string().into();
        }
        let request = ApiRequest::post(OPERATION, "/api/v1/preauthkey", body);
        match self.call_on_object::<OneKey>(request).await {
            // An old server looks for user 0.
            Err(error) if new.user.is_none() && error.is_not_found() => Err(self.error(
                OPERATION,
                ErrorKind::Unsupported {
                    feature: "pre-auth keys without a user",
                    since: Generation::V0_28,
                    remedy: Some("set headscale.user"),
                },
            )),
            created => Ok(created?.pre_auth_key),
        }
    }

    /// The keys of this user; since 0.28 those of all users.
    pub async fn pre_auth_keys(&self, user: u64) -> Result<Vec<PreAuthKey>, Error> {
        let path = format!("/api/v1/preauthkey?user={user}");
        let request = ApiRequest::get("list pre-auth keys", path);
        Ok(self.call::<KeysJson>(request).await?.pre_auth_keys)
    }

    pub async fn expire_pre_auth_key(&self, key: &PreAuthKey) -> Result<(), Error> {
        // Since 0.28 by id, before that by user and key. Each ignores the other fields.
        let body = json!({
            "id": key.id.to_string(),
            "user": key.user.as_ref().map(|user| user.id.to_string()),
            "key": key.key.expose(),
        });
        let path = "/api/v1/preauthkey/expire";
        let request = ApiRequest::post("expire a pre-auth key", path, body);
        let Empty {} = self.call(request).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_does_not_contain_the_key() {
        let text = r#"{"user":null,"id":"3","key":"0123456789abcdef","reusable":false,
            "used":true,"expiration":"2026-11-15T19:40:23Z","aclTags":["tag:k8s-node"]}"#;
        let key: PreAuthKey = serde_json::from_str(text).unwrap();
        assert!(!format!("{key:?}").contains("0123456789abcdef"));
        assert_eq!(key.key.expose(), "0123456789abcdef");
        assert!(key.is_used && !key.is_ephemeral);
        assert_eq!(key.tags, ["tag:k8s-node"]);
    }
}
