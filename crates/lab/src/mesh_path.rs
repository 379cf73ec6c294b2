//! What the tailscaled of a [`Member`] tells about the mesh.

use std::fmt;
use std::net::IpAddr;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::cluster::Member;
use crate::netns::Netns;
use crate::process;
use crate::tools::TAILSCALE;

const SOCKET: &str = "/run/headcni/tailscaled.sock";

/// How packets get from one node to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeshPath {
    /// From address to address.
    Direct,
    /// Over a server that both can reach.
    Relay,
    /// Nobody serves these pods.
    None,
}

impl fmt::Display for MeshPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Direct => "direct",
            Self::Relay => "relay",
            Self::None => "none",
        })
    }
}

impl Member<'_> {
    /// A line of words that asks its tailscaled, as a person on the node would.
    pub fn tailscale_line(&self) -> String {
        let program = TAILSCALE.program("tailscale");
        format!("{} --socket={SOCKET}", program.display())
    }

    /// What its tailscaled knows of itself and its peers.
    pub fn mesh_status(&self) -> Result<Value> {
        let mut command = self.node.command(TAILSCALE.program("tailscale"));
        command.args([&format!("--socket={SOCKET}"), "status", "--json"]);
        let text = process::run(&mut command)?.stdout;
        serde_json::from_str(&text).with_context(|| format!("read tailscale's status: {text}"))
    }

    /// Its own addresses on the mesh, IPv4 first.
    pub fn mesh_addresses(&self) -> Result<Vec<IpAddr>> {
        let status = self.mesh_status()?;
        let mut all: Vec<IpAddr> = texts(&status["TailscaleIPs"])
            .filter_map(|text| text.parse().ok())
            .collect();
        all.sort();
        Ok(all)
    }

    /// How its packets get to the pods of another node at this moment.
    pub fn path_to(&self, other: &Member<'_>) -> Result<MeshPath> {
        Ok(path(&self.mesh_status()?, &other.networks()))
    }
}

/// The way to the peer who serves any of these networks. The name of its relay says only where it could be
/// reached; an address says that it is reached there.
fn path(status: &Value, networks: &[String]) -> MeshPath {
    let peers = status["Peer"].as_object().into_iter().flatten();
    let is_one = |route: &str| networks.iter().any(|network| network == route);
    let serves = |peer: &&Value| texts(&peer["PrimaryRoutes"]).any(is_one);
    match peers.map(|(_, peer)| peer).find(serves) {
        None => MeshPath::None,
        Some(peer) if peer["CurAddr"].as_str().is_some_and(|at| !at.is_empty()) => MeshPath::Direct,
        Some(_) => MeshPath::Relay,
    }
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const WAYS: [MeshPath; 3] = [MeshPath::Direct, MeshPath::Relay, MeshPath::None];

    #[test]
    fn a_peer_that_is_reached_at_an_address_is_direct() {
        let status = json!({"Peer": {
            "nodekey:1": {"PrimaryRoutes": ["10.244.1.0/24"], "CurAddr": "10.99.0.1:4", "Relay": "lab"},
            "nodekey:2": {"PrimaryRoutes": ["10.244.2.0/24"], "CurAddr": "", "Relay": "lab"},
            "nodekey:3": {"PrimaryRoutes": null, "CurAddr": "10.99.0.3:4"},
        }});
        let to = |number: u8| path(&status, &[format!("10.244.{number}.0/24")]);
        assert_eq!([1, 2, 3].map(to), WAYS);
        let nobody = json!({"Peer": null});
        let networks = ["10.244.1.0/24".to_owned()];
        assert_eq!(path(&nobody, &networks), MeshPath::None);
    }
}
