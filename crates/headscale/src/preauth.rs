//! Pre-auth keys: who has one may join.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use serde_json::json;

use super::ask::Ask;
use super::client::Client;
use super::error::Error;
use super::generation::Generation;
use super::problem::Problem;
use super::secret::Secret;
use super::user::User;
use super::wire::{self, Done};

/// How a key is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewKey {
    /// The number of the user whose nodes it makes. None before 0.28 can do without; since then, a
    /// key with tags needs none.
    pub user: Option<u64>,
    /// The tags that its nodes get.
    pub tags: Vec<String>,
    /// For how many nodes.
    pub uses: Uses,
    /// Whether its nodes are forgotten when they are gone.
    pub nodes: Lifetime,
    /// Until when it can be used. Without one, the server makes keys that have expired already.
    pub expiration: Timestamp,
}

/// For how many nodes a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uses {
    /// For one.
    Once,
    /// For any number.
    Many,
}

/// How long the server remembers nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// Until somebody deletes them.
    Lasting,
    /// Until they are gone.
    Ephemeral,
}

/// A key.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreAuthKey {
    /// Its number.
    #[serde(deserialize_with = "wire::number")]
    pub id: u64,
    /// The key itself. Since 0.28 it is whole only in the answer to its making.
    #[serde(deserialize_with = "secret")]
    pub key: Secret,
    /// Whose nodes it makes.
    pub user: Option<User>,
    /// Whether it is for more than one node.
    #[serde(rename = "reusable", default, deserialize_with = "wire::or_default")]
    pub is_reusable: bool,
    /// Whether its nodes are forgotten when they are gone.
    #[serde(rename = "ephemeral", default, deserialize_with = "wire::or_default")]
    pub is_ephemeral: bool,
    /// Whether somebody has joined by it.
    #[serde(rename = "used", default, deserialize_with = "wire::or_default")]
    pub is_used: bool,
    /// Until when it can be used.
    #[serde(default, deserialize_with = "wire::time")]
    pub expiration: Option<Timestamp>,
    /// Since when there is one.
    #[serde(default, deserialize_with = "wire::time")]
    pub created_at: Option<Timestamp>,
    /// The tags that its nodes get.
    #[serde(rename = "aclTags", default, deserialize_with = "wire::or_default")]
    pub tags: Vec<String>,
}

fn secret<'de, D: Deserializer<'de>>(input: D) -> Result<Secret, D::Error> {
    Ok(Secret::new(String::deserialize(input)?))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct One {
    pre_auth_key: PreAuthKey,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct All {
    #[serde(default, deserialize_with = "wire::or_default")]
    pre_auth_keys: Vec<PreAuthKey>,
}

impl Client {
    /// Makes a key.
    pub async fn create_pre_auth_key(&self, new: &NewKey) -> Result<PreAuthKey, Error> {
        let mut body = json!({
            "aclTags": new.tags,
            "reusable": new.uses == Uses::Many,
            "ephemeral": new.nodes == Lifetime::Ephemeral,
            "expiration": new.expiration.to_string(),
        });
        if let Some(user) = new.user {
            body["user"] = user.to_string().into();
        }
        let ask = Ask::post("create a pre-auth key", "/api/v1/preauthkey", body);
        let made: Result<One, Error> = self.call_about(ask).await;
        match made {
            // An old one looks for user number 0.
            Err(error) if new.user.is_none() && error.is_not_found() => Err(self.error(
                "create a pre-auth key",
                Problem::Unsupported {
                    what: "pre-auth keys without a user",
                    since: Generation::V0_28,
                    remedy: Some("set headscale.user"),
                },
            )),
            made => Ok(made?.pre_auth_key),
        }
    }

    /// This user's keys; since 0.28 everybody's.
    pub async fn pre_auth_keys(&self, user: u64) -> Result<Vec<PreAuthKey>, Error> {
        let path = format!("/api/v1/preauthkey?user={user}");
        let keys: All = self.call(Ask::get("list pre-auth keys", path)).await?;
        Ok(keys.pre_auth_keys)
    }

    /// Makes a key useless.
    pub async fn expire_pre_auth_key(&self, key: &PreAuthKey) -> Result<(), Error> {
        // Since 0.28 by its number; before that by whose it is and what it is. Each ignores what it
        // does not know.
        let body = json!({
            "id": key.id.to_string(),
            "user": key.user.as_ref().map(|user| user.id.to_string()),
            "key": key.key.expose(),
        });
        let path = "/api/v1/preauthkey/expire";
        let _: Done = self
            .call(Ask::post("expire a pre-auth key", path, body))
            .await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_not_shown() {
        let text = r#"{"user":null,"id":"3","key":"0123456789abcdef","reusable":false,
            "used":true,"expiration":"2026-11-15T19:40:23Z","aclTags":["tag:k8s-node"]}"#;
        let key: PreAuthKey = serde_json::from_str(text).unwrap();
        assert!(!format!("{key:?}").contains("0123456789abcdef"));
        assert_eq!(key.key.expose(), "0123456789abcdef");
        assert!(key.is_used && !key.is_ephemeral);
        assert_eq!(key.tags, ["tag:k8s-node"]);
    }
}
