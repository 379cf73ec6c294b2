//! Headscale users.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use crate::client::Client;
use crate::error::Error;
use crate::request::ApiRequest;
use crate::wire;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct User {
    #[serde(deserialize_with = "wire::uint64")]
    pub id: u64,
    #[serde(default, deserialize_with = "wire::or_default")]
    pub name: String,
    #[serde(default, deserialize_with = "wire::time")]
    pub created_at: Option<Timestamp>,
}

#[derive(Deserialize)]
struct UsersJson {
    #[serde(default, deserialize_with = "wire::or_default")]
    users: Vec<User>,
}

#[derive(Deserialize)]
struct OneUser {
    user: User,
}

impl Client {
    pub async fn users(&self) -> Result<Vec<User>, Error> {
        let request = ApiRequest::get("list users", "/api/v1/user");
        Ok(self.call::<UsersJson>(request).await?.users)
    }

    pub async fn user(&self, name: &str) -> Result<Option<User>, Error> {
        let path = format!("/api/v1/user?name={}", wire::escape(name));
        let request = ApiRequest::get("find a user", path);
        let users = self.call::<UsersJson>(request).await?.users;
        Ok(users.into_iter().find(|user| user.name == name))
    }

    pub async fn create_user(&self, name: &str) -> Result<User, Error> {
        let body = json!({ "name": name });
        let request = ApiRequest::post("create a user", "/api/v1/user", body);
        Ok(self.call::<OneUser>(request).await?.user)
    }
}
