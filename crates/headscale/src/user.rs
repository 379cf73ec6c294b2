//! Users of the server.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use super::ask::Ask;
use super::client::Client;
use super::error::Error;
use super::wire;

/// A user.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct User {
    /// Its number.
    #[serde(deserialize_with = "wire::number")]
    pub id: u64,
    /// Its name.
    #[serde(default, deserialize_with = "wire::or_default")]
    pub name: String,
    /// Since when there is one.
    #[serde(default, deserialize_with = "wire::time")]
    pub created_at: Option<Timestamp>,
}

#[derive(Deserialize)]
struct Users {
    #[serde(default, deserialize_with = "wire::or_default")]
    users: Vec<User>,
}

#[derive(Deserialize)]
struct One {
    user: User,
}

impl Client {
    /// All users.
    pub async fn users(&self) -> Result<Vec<User>, Error> {
        let users: Users = self.call(Ask::get("list users", "/api/v1/user")).await?;
        Ok(users.users)
    }

    /// The user of this name, if there is one.
    pub async fn user(&self, name: &str) -> Result<Option<User>, Error> {
        let path = format!("/api/v1/user?name={}", wire::escaped(name));
        let found: Users = self.call(Ask::get("look for a user", path)).await?;
        let mut users = found.users.into_iter();
        Ok(users.find(|user| user.name == name))
    }

    /// Makes a user.
    pub async fn create_user(&self, name: &str) -> Result<User, Error> {
        let body = json!({ "name": name });
        let ask = Ask::post("create a user", "/api/v1/user", body);
        let made: One = self.call(ask).await?;
        Ok(made.user)
    }
}
