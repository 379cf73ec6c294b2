//! What an administrator does by the server's command line.

use anyhow::{Context, Result, bail};
use ipnet::IpNet;
use serde_json::{Value, json};

use super::Headscale;

/// A policy under which the nodes of a tag and pods reach each other, with the pods' own addresses;
/// prefixes of pods are approved at once.
pub fn open_policy(tag: &str, pods: &[IpNet]) -> Value {
    let prefixes = pods.iter().map(IpNet::to_string);
    let sources: Vec<String> = [tag.to_owned()].into_iter().chain(prefixes).collect();
    let destinations: Vec<String> = sources.iter().map(|source| format!("{source}:*")).collect();
    let approved = pods.iter().map(|prefix| (prefix.to_string(), json!([tag])));
    let approved: serde_json::Map<_, _> = approved.collect();
    json!({
        "tagOwners": { tag: [] },
        "autoApprovers": { "routes": approved },
        "acls": [{ "action": "accept", "src": sources, "dst": destinations }],
    })
}

impl Headscale<'_> {
    /// A key for one node, which gets the tag. Before 0.28, keys needed a user as well.
    pub fn preauth_key(&self, tag: &str) -> Result<String> {
        self.key_for(["--tags", tag])
    }

    /// A key for one node of a user who is made for it: a node that has no tag.
    pub fn users_key(&self, user: &str) -> Result<String> {
        let made = self.cli(["users", "create", user, "-o", "json"])?;
        // A number, which some of its answers have as a text.
        let id = made["id"].to_string();
        self.key_for(["--user", id.trim_matches('"')])
    }

    fn key_for(&self, whom: [&str; 2]) -> Result<String> {
        let create = ["preauthkeys", "create", "-e", "1h", "-o", "json"];
        // The answer is not for the error: it is a secret.
        let answer = self.cli(create.into_iter().chain(whom))?;
        let key = answer["key"].as_str();
        Ok(key.context("headscale made a key that is none")?.to_owned())
    }

    /// All nodes that it knows.
    pub fn nodes(&self) -> Result<Vec<Value>> {
        match self.cli(["nodes", "list", "-o", "json"])? {
            Value::Array(nodes) => Ok(nodes),
            Value::Null => Ok(Vec::new()),
            other => bail!("headscale made a strange list of nodes: {other}"),
        }
    }

    /// The node with this host name.
    pub fn node_named(&self, name: &str) -> Result<Value> {
        let nodes = self.nodes()?;
        let found = nodes.iter().find(|node| node["name"] == name);
        found
            .cloned()
            .with_context(|| format!("headscale has no node {name}, but {nodes:?}"))
    }

    /// Approves just these prefixes of a node, and no others.
    pub fn approve(&self, name: &str, prefixes: &[&str]) -> Result<()> {
        let prefixes = prefixes.join(",");
        self.of_node(name, "approve-routes", &["-r", &prefixes])
    }

    /// Lets a node's key expire now.
    pub fn expire(&self, name: &str) -> Result<()> {
        self.of_node(name, "expire", &[])
    }

    /// Forgets a node.
    pub fn delete(&self, name: &str) -> Result<()> {
        self.of_node(name, "delete", &[])
    }

    fn of_node(&self, name: &str, verb: &str, rest: &[&str]) -> Result<()> {
        let id = self.node_named(name)?["id"].to_string();
        let line = ["nodes", verb, "--force", "-o", "json", "-i", &id];
        self.cli(line.into_iter().chain(rest.iter().copied()))
            .with_context(|| format!("{verb} node {name}"))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_open_policy_names_the_tag_and_every_prefix_on_both_sides() {
        let pods = ["10.244.0.0/16", "fd00::/48"].map(|prefix| prefix.parse().unwrap());
        let policy = open_policy("tag:node", &pods);
        let [src, dst] = ["src", "dst"].map(|side| &policy["acls"][0][side]);
        assert_eq!(src, &json!(["tag:node", "10.244.0.0/16", "fd00::/48"]));
        assert_eq!(
            dst,
            &json!(["tag:node:*", "10.244.0.0/16:*", "fd00::/48:*"])
        );
        let routes = json!({"10.244.0.0/16": ["tag:node"], "fd00::/48": ["tag:node"]});
        assert_eq!(policy["autoApprovers"]["routes"], routes);
    }
}
