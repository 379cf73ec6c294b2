//! Keys to the API itself, so that ours can be replaced before it expires.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use serde_json::json;

use super::ask::Ask;
use super::client::Client;
use super::error::Error;
use super::secret::Secret;
use super::wire::{self, Done};

/// What keys begin with since 0.28.
const MARK: &str = "hskey-api-";
/// How long what follows is: it may have the separator in it.
const PREFIX_CHARS: usize = 12;
/// What stands for the secret part in lists.
const MASK: &str = "***";

/// A key, but for its secret part.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiKey {
    /// Its number.
    #[serde(deserialize_with = "wire::number")]
    pub id: u64,
    /// What it is known by: see [`ApiKey::prefix_of`].
    #[serde(deserialize_with = "prefix")]
    pub prefix: String,
    /// Until when it can be used.
    #[serde(default, deserialize_with = "wire::time")]
    pub expiration: Option<Timestamp>,
    /// Since when there is one.
    #[serde(default, deserialize_with = "wire::time")]
    pub created_at: Option<Timestamp>,
    /// When it was last used, in versions that say so.
    #[serde(default, deserialize_with = "wire::time")]
    pub last_seen: Option<Timestamp>,
}

fn prefix<'de, D: Deserializer<'de>>(input: D) -> Result<String, D::Error> {
    let shown = String::deserialize(input)?;
    let bare = shown.strip_suffix(MASK).unwrap_or(&shown);
    let bare = match bare.strip_prefix(MARK) {
        Some(marked) => marked.strip_suffix('-').unwrap_or(marked),
        None => bare,
    };
    Ok(bare.to_owned())
}

impl ApiKey {
    /// What a key is known by; it is no secret. None if it is no key of a form that we know.
    pub fn prefix_of(key: &Secret) -> Option<&str> {
        let key = key.expose();
        match key.strip_prefix(MARK) {
            Some(rest) => rest.get(..PREFIX_CHARS),
            None => Some(key.split_once('.')?.0),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Made {
    api_key: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct All {
    #[serde(default, deserialize_with = "wire::or_default")]
    api_keys: Vec<ApiKey>,
}

impl Client {
    /// All keys, those that have expired included.
    pub async fn api_keys(&self) -> Result<Vec<ApiKey>, Error> {
        let keys: All = self
            .call(Ask::get("list API keys", "/api/v1/apikey"))
            .await?;
        Ok(keys.api_keys)
    }

    /// Makes a key. Without a time, the server would make one that has expired already.
    pub async fn create_api_key(&self, expiration: Timestamp) -> Result<Secret, Error> {
        let body = json!({ "expiration": expiration.to_string() });
        let ask = Ask::post("create an API key", "/api/v1/apikey", body);
        let made: Made = self.call(ask).await?;
        Ok(Secret::new(made.api_key))
    }

    /// Makes a key useless, by what it is known by.
    pub async fn expire_api_key(&self, prefix: &str) -> Result<(), Error> {
        let body = json!({ "prefix": prefix });
        let path = "/api/v1/apikey/expire";
        let _: Done = self
            .call(Ask::post("expire an API key", path, body))
            .await?;
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
    fn a_key_is_known_by_its_prefix(#[case] key: &str, #[case] prefix: Option<&str>) {
        assert_eq!(ApiKey::prefix_of(&Secret::new(key)), prefix);
    }

    #[rstest]
    #[case("hskey-api-ab-d_fghijkl-***", "ab-d_fghijkl")]
    #[case("abcdefg***", "abcdefg")]
    #[case("abcdefg", "abcdefg")]
    fn lists_show_prefixes_in_several_forms(#[case] shown: &str, #[case] prefix: &str) {
        let text = format!(r#"{{"id":"1","prefix":"{shown}","expiration":null}}"#);
        let key: ApiKey = serde_json::from_str(&text).unwrap();
        assert_eq!(key.prefix, prefix);
    }
}
