//! Nodes: the members of the mesh, as the server has them.

use std::net::IpAddr;

use ipnet::IpNet;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use super::ask::Ask;
use super::client::Client;
use super::error::Error;
use super::user::User;
use super::wire::{self, Done};

/// A member of the mesh. Most of it is its own word.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", from = "Written")]
pub struct Node {
    /// Its number.
    pub id: u64,
    /// Its machine's key, as in `mkey:…`.
    pub machine_key: String,
    /// Its own key, as in `nodekey:…`.
    pub node_key: String,
    /// Its key for finding ways, as in `discokey:…`.
    pub disco_key: String,
    /// Its addresses in the mesh.
    pub addresses: Vec<IpAddr>,
    /// What it calls itself.
    pub name: String,
    /// What it is called in the mesh.
    pub given_name: String,
    /// Whose it is. Those with tags are nobody's since 0.28.
    pub user: Option<User>,
    /// When it was last there.
    pub last_seen: Option<Timestamp>,
    /// When its key expires or has expired, if ever.
    pub expiry: Option<Timestamp>,
    /// Since when it is known.
    pub created_at: Option<Timestamp>,
    /// The number of the pre-auth key by which it joined.
    pub pre_auth_key: Option<u64>,
    /// Whether it is there.
    pub is_online: bool,
    /// The networks that it advertises.
    pub available: Vec<IpNet>,
    /// The networks that somebody approved, whether or not it advertises them.
    pub approved: Vec<IpNet>,
    /// The networks that others are told to send to it. Only a list of all nodes has them.
    pub serving: Vec<IpNet>,
    /// Its tags. Before 0.28 a node could ask for tags that it may not have; they are not here.
    pub tags: Vec<String>,
}

/// As any version writes it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    #[serde(deserialize_with = "wire::number")]
    id: u64,
    #[serde(default, deserialize_with = "wire::or_default")]
    machine_key: String,
    #[serde(default, deserialize_with = "wire::or_default")]
    node_key: String,
    #[serde(default, deserialize_with = "wire::or_default")]
    disco_key: String,
    #[serde(default, deserialize_with = "wire::readable")]
    ip_addresses: Vec<IpAddr>,
    #[serde(default, deserialize_with = "wire::or_default")]
    name: String,
    #[serde(default, deserialize_with = "wire::or_default")]
    given_name: String,
    user: Option<User>,
    #[serde(default, deserialize_with = "wire::time")]
    last_seen: Option<Timestamp>,
    #[serde(default, deserialize_with = "wire::time")]
    expiry: Option<Timestamp>,
    #[serde(default, deserialize_with = "wire::time")]
    created_at: Option<Timestamp>,
    pre_auth_key: Option<JoinedBy>,
    #[serde(default, deserialize_with = "wire::or_default")]
    online: bool,
    #[serde(default, deserialize_with = "wire::readable")]
    available_routes: Vec<IpNet>,
    #[serde(default, deserialize_with = "wire::readable")]
    approved_routes: Vec<IpNet>,
    #[serde(default, deserialize_with = "wire::readable")]
    subnet_routes: Vec<IpNet>,
    #[serde(default, deserialize_with = "wire::or_default")]
    tags: Vec<String>,
    #[serde(default, deserialize_with = "wire::or_default")]
    forced_tags: Vec<String>,
    #[serde(default, deserialize_with = "wire::or_default")]
    valid_tags: Vec<String>,
}

/// The key by which a node joined; old versions show all of it, and it is not kept.
#[derive(Deserialize)]
struct JoinedBy {
    #[serde(deserialize_with = "wire::number")]
    id: u64,
}

impl From<Written> for Node {
    fn from(written: Written) -> Self {
        let mut tags = written.tags;
        tags.extend(written.forced_tags);
        tags.extend(written.valid_tags);
        Self {
            id: written.id,
            machine_key: written.machine_key,
            node_key: written.node_key,
            disco_key: written.disco_key,
            addresses: written.ip_addresses,
            name: written.name,
            given_name: written.given_name,
            user: written.user,
            last_seen: written.last_seen,
            expiry: written.expiry,
            created_at: written.created_at,
            pre_auth_key: written.pre_auth_key.map(|key| key.id),
            is_online: written.online,
            available: sorted(written.available_routes),
            approved: sorted(written.approved_routes),
            serving: sorted(written.subnet_routes),
            tags: sorted(tags),
        }
    }
}

/// The server gives lists in any order, and the same thing twice.
fn sorted<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort();
    list.dedup();
    list
}

#[derive(Deserialize)]
struct All {
    #[serde(default, deserialize_with = "wire::or_default")]
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct One {
    node: Node,
}

impl Client {
    /// All nodes.
    pub async fn nodes(&self) -> Result<Vec<Node>, Error> {
        let all: All = self.call(Ask::get("list nodes", "/api/v1/node")).await?;
        Ok(all.nodes)
    }

    /// One node, without what it serves.
    pub async fn node(&self, id: u64) -> Result<Node, Error> {
        let ask = Ask::get("read a node", path(id, ""));
        Ok(self.call_about::<One>(ask).await?.node)
    }

    /// Approves these networks of a node, and no others: it replaces the list.
    pub async fn approve_routes(&self, id: u64, routes: &[IpNet]) -> Result<Node, Error> {
        let body = json!({ "routes": routes });
        let ask = Ask::post("approve routes", path(id, "/approve_routes"), body);
        Ok(self.call_about::<One>(ask).await?.node)
    }

    /// Gives a node these tags, and no others.
    pub async fn set_tags(&self, id: u64, tags: &[String]) -> Result<Node, Error> {
        let body = json!({ "tags": tags });
        let ask = Ask::post("set tags", path(id, "/tags"), body);
        Ok(self.call_about::<One>(ask).await?.node)
    }

    /// Gives a node another name in the mesh.
    pub async fn rename_node(&self, id: u64, name: &str) -> Result<Node, Error> {
        let path = path(id, &format!("/rename/{}", wire::escaped(name)));
        let ask = Ask::post("rename a node", path, json!({}));
        Ok(self.call_about::<One>(ask).await?.node)
    }

    /// Lets a node's key expire now: it has to log in again.
    pub async fn expire_node(&self, id: u64) -> Result<Node, Error> {
        let ask = Ask::post("expire a node", path(id, "/expire"), json!({}));
        Ok(self.call_about::<One>(ask).await?.node)
    }

    /// Forgets a node.
    pub async fn delete_node(&self, id: u64) -> Result<(), Error> {
        let _: Done = self
            .call_about(Ask::delete("delete a node", path(id, "")))
            .await?;
        Ok(())
    }
}

fn path(id: u64, rest: &str) -> String {
    format!("/api/v1/node/{id}{rest}")
}

#[cfg(test)]
mod tests;
