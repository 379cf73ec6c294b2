//! Nodes of the tailnet, as Headscale lists them.

use std::net::IpAddr;

use ipnet::IpNet;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use crate::client::Client;
use crate::error::Error;
use crate::request::ApiRequest;
use crate::users::User;
use crate::wire::{self, Empty};

/// A node of the tailnet. Most fields are what the node claims about itself.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "NodeJson")]
pub struct Node {
    pub id: u64,
    /// As in `mkey:…`.
    pub machine_key: String,
    /// As in `nodekey:…`.
    pub node_key: String,
    /// As in `discokey:…`.
    pub disco_key: String,
    pub addresses: Vec<IpAddr>,
    /// The host name that the node reports.
    pub name: String,
    /// The name in MagicDNS, unique in the tailnet.
    pub given_name: String,
    /// Tagged nodes have no user of their own since 0.28.
    pub user: Option<User>,
    pub last_seen: Option<Timestamp>,
    /// When the node key expires or expired.
    pub expiry: Option<Timestamp>,
    pub created_at: Option<Timestamp>,
    /// The id of the pre-auth key that the node joined with.
    pub pre_auth_key: Option<u64>,
    pub is_online: bool,
    /// `availableRoutes`.
    pub advertised_routes: Vec<IpNet>,
    /// `approvedRoutes`, whether or not the node advertises them.
    pub approved_routes: Vec<IpNet>,
    /// `subnetRoutes`: what peers send to this node. Filled only by [`Client::nodes`].
    pub primary_routes: Vec<IpNet>,
    /// Before 0.28 a node could request tags that it may not have; those are not here.
    pub tags: Vec<String>,
}

/// A node in the JSON of any generation.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeJson {
    #[serde(deserialize_with = "wire::uint64")]
    id: u64,
    #[serde(default, deserialize_with = "wire::or_default")]
    machine_key: String,
    #[serde(default, deserialize_with = "wire::or_default")]
    node_key: String,
    #[serde(default, deserialize_with = "wire::or_default")]
    disco_key: String,
    #[serde(default, deserialize_with = "wire::parsed_list")]
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
    pre_auth_key: Option<PreAuthKeyId>,
    #[serde(default, deserialize_with = "wire::or_default")]
    online: bool,
    #[serde(default, deserialize_with = "wire::parsed_list")]
    available_routes: Vec<IpNet>,
    #[serde(default, deserialize_with = "wire::parsed_list")]
    approved_routes: Vec<IpNet>,
    #[serde(default, deserialize_with = "wire::parsed_list")]
    subnet_routes: Vec<IpNet>,
    /// Since 0.28.
    #[serde(default, deserialize_with = "wire::or_default")]
    tags: Vec<String>,
    /// Before 0.28.
    #[serde(default, deserialize_with = "wire::or_default")]
    forced_tags: Vec<String>,
    #[serde(default, deserialize_with = "wire::or_default")]
    valid_tags: Vec<String>,
}

/// Old versions include the whole key; only its id is read.
#[derive(Deserialize)]
struct PreAuthKeyId {
    #[serde(deserialize_with = "wire::uint64")]
    id: u64,
}

impl From<NodeJson> for Node {
    fn from(json: NodeJson) -> Self {
        Self {
            id: json.id,
            machine_key: json.machine_key,
            node_key: json.node_key,
            disco_key: json.disco_key,
            addresses: json.ip_addresses,
            name: json.name,
            given_name: json.given_name,
            user: json.user,
            last_seen: json.last_seen,
            expiry: json.expiry,
            created_at: json.created_at,
            pre_auth_key: json.pre_auth_key.map(|key| key.id),
            is_online: json.online,
            advertised_routes: sorted(json.available_routes),
            approved_routes: sorted(json.approved_routes),
            primary_routes: sorted(json.subnet_routes),
            tags: sorted([json.tags, json.forced_tags, json.valid_tags].concat()),
        }
    }
}

/// Headscale's lists have no stable order, and may contain duplicates.
fn sorted<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort();
    list.dedup();
    list
}

#[derive(Deserialize)]
struct NodesJson {
    #[serde(default, deserialize_with = "wire::or_default")]
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct OneNode {
    node: Node,
}

impl Client {
    pub async fn nodes(&self) -> Result<Vec<Node>, Error> {
        let request = ApiRequest::get("list nodes", "/api/v1/node");
        Ok(self.call::<NodesJson>(request).await?.nodes)
    }

    /// One node, without its primary routes.
    pub async fn node(&self, id: u64) -> Result<Node, Error> {
        let request = ApiRequest::get("read a node", path(id, ""));
        Ok(self.call_on_object::<OneNode>(request).await?.node)
    }

    /// Replaces the node's approved routes.
    pub async fn approve_routes(&self, id: u64, routes: &[IpNet]) -> Result<Node, Error> {
        let body = json!({ "routes": routes });
        let request = ApiRequest::post("approve routes", path(id, "/approve_routes"), body);
        Ok(self.call_on_object::<OneNode>(request).await?.node)
    }

    /// Replaces the node's tags.
    pub async fn set_tags(&self, id: u64, tags: &[String]) -> Result<Node, Error> {
        let body = json!({ "tags": tags });
        let request = ApiRequest::post("set tags", path(id, "/tags"), body);
        Ok(self.call_on_object::<OneNode>(request).await?.node)
    }

    /// Changes the node's name in MagicDNS.
    pub async fn rename_node(&self, id: u64, name: &str) -> Result<Node, Error> {
        let path = path(id, &format!("/rename/{}", wire::escape(name)));
        let request = ApiRequest::post("rename a node", path, json!({}));
        Ok(self.call_on_object::<OneNode>(request).await?.node)
    }

    /// Expires the node key now, so that the node has to log in again.
    pub async fn expire_node(&self, id: u64) -> Result<Node, Error> {
        let request = ApiRequest::post("expire a node", path(id, "/expire"), json!({}));
        Ok(self.call_on_object::<OneNode>(request).await?.node)
    }

    pub async fn delete_node(&self, id: u64) -> Result<(), Error> {
        let request = ApiRequest::delete("delete a node", path(id, ""));
        let Empty {} = self.call_on_object(request).await?;
        Ok(())
    }
}

fn path(id: u64, rest: &str) -> String {
    format!("/api/v1/node/{id}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const V0_29: &str = r#"{"id":"1","machineKey":"mkey:aa","nodeKey":"nodekey:bb","discoKey":"discokey:cc",
      "ipAddresses":["100.64.0.1","fd7a:115c:a1e0::1"],"name":"node1",
      "user":{"id":"2147455555","name":"tagged-devices","createdAt":null},
      "lastSeen":"2026-11-16T06:00:00Z","expiry":null,"preAuthKey":{"id":"4","key":"hskey-auth-x-***"},
      "createdAt":"2026-11-15T06:00:00.5Z","registerMethod":"REGISTER_METHOD_AUTH_KEY",
      "givenName":"node1","online":true,"approvedRoutes":["fd00::/64","10.244.1.0/24"],
      "availableRoutes":["10.244.1.0/24","fd00::/64"],"subnetRoutes":["10.244.1.0/24"],
      "tags":["tag:k8s-node"]}"#;

    const V0_26: &str = r#"{"id":"2","machineKey":"mkey:aa","nodeKey":"nodekey:bb","discoKey":"",
      "ipAddresses":[],"name":"node2","user":{"id":"1","name":"lab"},"lastSeen":null,
      "expiry":"0001-01-01T00:00:00Z","preAuthKey":{"id":"4","key":"0123456789abcdef"},
      "forcedTags":["tag:b","tag:a"],"invalidTags":["tag:wished"],"validTags":["tag:a"],
      "givenName":"node2","online":false,"approvedRoutes":[],"availableRoutes":[],"subnetRoutes":[]}"#;

    #[test]
    fn a_node_of_0_29_is_parsed() {
        let node: Node = serde_json::from_str(V0_29).unwrap();
        assert_eq!((node.id, node.pre_auth_key), (1, Some(4)));
        assert_eq!(node.addresses.len(), 2);
        assert_eq!(node.user.unwrap().id, 2_147_455_555);
        assert_eq!(
            node.approved_routes, node.advertised_routes,
            "both are sorted"
        );
        assert_eq!(node.primary_routes, ["10.244.1.0/24".parse().unwrap()]);
        assert_eq!(node.tags, ["tag:k8s-node"]);
        assert!(node.is_online && node.expiry.is_none());
    }

    #[test]
    fn a_node_of_0_26_has_no_invalid_tags_and_no_key() {
        let node: Node = serde_json::from_str(V0_26).unwrap();
        assert_eq!(node.tags, ["tag:a", "tag:b"]);
        assert_eq!(node.expiry, None);
        assert!(!format!("{node:?}").contains("0123456789abcdef"));
    }

    #[test]
    fn an_empty_server_has_no_nodes() {
        for text in ["{}", r#"{"nodes":[]}"#, r#"{"nodes":null}"#] {
            let list: NodesJson = serde_json::from_str(text).unwrap();
            assert!(list.nodes.is_empty());
        }
    }
}
