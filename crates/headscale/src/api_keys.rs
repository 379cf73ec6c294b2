//! API keys, so that the daemon knows when its own expires.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use serde_json::json;

use crate::client::Client;
use crate::error::Error;
use crate::request::ApiRequest;
use crate::secret::Secret;
use crate::wire::{self, Empty};

/// What keys begin with since 0.28.
const KEY_PREFIX: &str = "hskey-api-";
/// Length of the public part that follows; it may contain the separator.
const PREFIX_CHARS: usize = 12;
/// Stands for the secret part in lists.
const MASK: &str = "***";

/// An API key without its secret part.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiKey {
    #[serde(deserialize_with = "wire::uint64")]
    pub id: u64,
    /// The public part: see [`ApiKey::prefix_of`].
    #[serde(deserialize_with = "prefix")]
    pub prefix: String,
    #[serde(default, deserialize_with = "wire::time")]
    pub expiration: Option<Timestamp>,
    #[serde(default, deserialize_with = "wire::time")]
    pub created_at: Option<Timestamp>,
    /// Not in every version.
    #[serde(default, deserialize_with = "wire::time")]
    pub last_seen: Option<Timestamp>,
}

fn prefix<'de, D: Deserializer<'de>>(input: D) -> Result<String, D::Error> {
    let shown = String::deserialize(input)?;
    let bare = shown.strip_suffix(MASK).unwrap_or(&shown);
    let bare = match bare.strip_prefix(KEY_PREFIX) {
        Some(rest) => rest.strip_suffix('-').unwrap_or(rest),
        None => bare,
    };
    Ok(bare.to_owned())
}

impl ApiKey {
    /// The public part of a key. `None` if the key has no known form.
    pub fn prefix_of(key: &Secret) -> Option<&str> {
        let key = key.expose();
        match key.strip_prefix(KEY_PREFIX) {
            Some(rest) => rest.get(..PREFIX_CHARS),
            None => Some(key.split_once('.')?.0),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CreatedKey {
    api_key: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeysJson {
    #[serde(default, deserialize_with = "wire::or_default")]
    api_keys: Vec<ApiKey>,
}

impl Client {
    /// All keys, including expired ones.
    pub async fn api_keys(&self) -> Result<Vec<ApiKey>, Error> {
        let request = ApiRequest::get("list API keys", "/api/v1/apikey");
        Ok(self.call::<KeysJson>(request).await?.api_keys)
    }

    /// The expiration is required: Headscale's default is a key that has expired already.
    pub async fn create_api_key(&self, expiration: Timestamp) -> Result<Secret, Error> {
        let body = json!({ "expiration": expiration.to_string() });
        let request = ApiRequest::post("create an API key", "/api/v1/apikey", body);
        Ok(Secret::new(self.call::<CreatedKey>(request).await?.api_key))
    }

    pub async fn expire_api_key(&self, prefix: &str) -> Result<(), Error> {
        let body = json!({ "prefix": prefix });
        let request = ApiRequest::post("expire an API key", "/api/v1/apikey/expire", body);
        let Empty {} = self.call(request).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("hskey-api-ab-d_fghijkl-secret-part", Some("ab-d_fghijkl"))]
    #[case("abcdefg.secretpart", Some("abcdefg"))]
    #[case("hskey-api-short", None)]
    #[case("neither", None)]
    fn the_public_part_of_a_key_is_its_prefix(#[case] key: &str, #[case] prefix: Option<&str>) {
        assert_eq!(ApiKey::prefix_of(&Secret::new(key)), prefix);
    }

    #[rstest]
    #[case("hskey-api-ab-d_fghijkl-***", "ab-d_fghijkl")]
    #[case("abcdefg***", "abcdefg")]
    #[case("abcdefg", "abcdefg")]
    fn lists_of_every_version_give_the_prefix(#[case] shown: &str, #[case] prefix: &str) {
        let text = format!(r#"{{"id":"1","prefix":"{shown}","expiration":null}}"#);
        let key: ApiKey = serde_json::from_str(&text).unwrap();
        assert_eq!(key.prefix, prefix);
    }
}
