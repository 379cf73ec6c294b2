//! What an administrator does with the `headscale` CLI.

use anyhow::{Context, Result, bail};
use ipnet::IpNet;
use serde_json::{Value, json};

use super::Headscale;

/// A policy that lets tagged nodes and pods reach each other and approves pod CIDRs automatically.
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

impl Headscale {
    /// A pre-auth key for one tagged node. Before 0.28 a key needs a user as well.
    pub fn preauth_key(&self, tag: &str) -> Result<String> {
        self.key_for(["--tags", tag])
    }

    /// Creates a user, and a pre-auth key for one node of it without a tag.
    pub fn user_preauth_key(&self, user: &str) -> Result<String> {
        let made = self.cli(["users", "create", user, "-o", "json"])?;
        // A number or a string, depending on the version.
        let id = made["id"].to_string();
        self.key_for(["--user", id.trim_matches('"')])
    }

    fn key_for(&self, owner: [&str; 2]) -> Result<String> {
        let create = ["preauthkeys", "create", "-e", "1h", "-o", "json"];
        // The output has a secret and must not be in the error.
        let answer = self.cli(create.into_iter().chain(owner))?;
        let key = answer["key"].as_str();
        Ok(key
            .context("no key in the output of preauthkeys create")?
            .to_owned())
    }

    pub fn nodes(&self) -> Result<Vec<Value>> {
        match self.cli(["nodes", "list", "-o", "json"])? {
            Value::Array(nodes) => Ok(nodes),
            Value::Null => Ok(Vec::new()),
            other => bail!("unexpected output of nodes list: {other}"),
        }
    }

    pub fn node_named(&self, name: &str) -> Result<Value> {
        let nodes = self.nodes()?;
        let found = nodes.iter().find(|node| node["name"] == name);
        found
            .cloned()
            .with_context(|| format!("no node {name} in {nodes:?}"))
    }

    /// Approves exactly these routes of a node.
    pub fn approve_routes(&self, name: &str, prefixes: &[&str]) -> Result<()> {
        let prefixes = prefixes.join(",");
        self.node_command(name, "approve-routes", &["-r", &prefixes])
    }

    /// Expires a node's key now.
    pub fn expire_node(&self, name: &str) -> Result<()> {
        self.node_command(name, "expire", &[])
    }

    pub fn delete_node(&self, name: &str) -> Result<()> {
        self.node_command(name, "delete", &[])
    }

    fn node_command(&self, name: &str, verb: &str, rest: &[&str]) -> Result<()> {
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
    fn the_open_policy_has_the_tag_and_every_cidr_as_source_and_destination() {
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
