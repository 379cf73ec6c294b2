//! The way to other nodes' pods. The mesh's link is a veth to another node, or a TUN that nobody
//! reads: who encrypts behind it makes no difference here.

mod beside;
mod bridged;
mod led;
mod lost;
mod many;
mod talk;
mod tuned;

use lab::{Netns, Node};
use node_config::Config;
use node_hostnet::{Desired, MeshRoutes, ReconcileInput};

use crate::scene::{BASE, LOCAL, Scene, networks};

/// The name of tailscaled's link.
const LINK: &str = "headcni01";
const REMOTES: &str = "10.9.4.0/24,fd00:9:0:4::/64";
/// DesiredPods of the other node, of this one that nobody has, and of no node at all.
const THERE: [&str; 2] = ["10.9.4.5", "fd00:9:0:4::5"];
const NOBODY: [&str; 2] = ["10.9.3.200", "fd00:9:0:3::200"];
const NOWHERE: [&str; 2] = ["10.9.77.7", "fd00:9:0:77::7"];
/// The other node's addresses as a member of the mesh.
const MEMBER: [&str; 2] = ["100.64.0.2", "fd7a:115c:a1e0::2"];

/// A node with an underlay, which leads to everything, and the mesh's link to another node.
struct Meshed {
    scene: Scene,
    /// What is beyond the underlay.
    world: Node,
    /// The other node.
    peer: Node,
}

impl Meshed {
    fn new() -> Self {
        let meshed = Self::without_link();
        let (node, peer) = (&meshed.scene.node, &meshed.peer);
        // A TUN asks nobody whether its addresses are its own.
        for place in [node, peer] {
            let name = "net.ipv6.conf.default.accept_dad";
            place.sysctl(name, "0").unwrap();
        }
        node.wire(LINK, "100.64.0.1/32", peer, "100.64.0.2/32")
            .unwrap();
        on(
            node,
            &format!("ip address add fd7a:115c:a1e0::1/128 dev {LINK} nodad"),
        );
        on(
            peer,
            &format!(
                "ip address add fd7a:115c:a1e0::2/128 dev {LINK} nodad
                 ip address add 10.9.4.5/32 dev {LINK}
                 ip address add fd00:9:0:4::5/128 dev {LINK} nodad
                 ip route add 100.64.0.0/10 dev {LINK}
                 ip route add fd7a:115c:a1e0::/48 dev {LINK}
                 ip route add 10.9.3.0/24 via 100.64.0.1 dev {LINK} onlink
                 ip route add fd00:9:0:3::/64 via fd7a:115c:a1e0::1 dev {LINK} onlink"
            ),
        );
        meshed
    }

    /// One whose link has not been made yet.
    fn without_link() -> Self {
        let meshed = Self {
            scene: Scene::new(),
            world: Node::new("world").unwrap(),
            peer: Node::new("peer").unwrap(),
        };
        let (node, world) = (&meshed.scene.node, &meshed.world);
        node.wire("up0", "192.168.7.2/24", world, "192.168.7.1/24")
            .unwrap();
        on(
            node,
            "ip address add fd00:7::2/64 dev up0 nodad
             ip route add default via 192.168.7.1
             ip route add default via fd00:7::1",
        );
        on(world, "ip address add fd00:7::1/64 dev up0 nodad");
        meshed
    }

    /// With a TUN instead of the veth.
    fn with_tun() -> Self {
        let meshed = Self::without_link();
        on(&meshed.scene.node, MAKE_TUN);
        meshed
    }

    fn node(&self) -> &Node {
        &self.scene.node
    }
}

const MAKE_TUN: &str = "ip tuntap add headcni01 mode tun; ip link set headcni01 up";

fn on(place: &impl Netns, lines: &str) {
    place.run(["sh", "-e", "-c", lines]).unwrap();
}

fn mesh() -> MeshRoutes {
    mesh_to(REMOTES)
}

fn mesh_to(remotes: &str) -> MeshRoutes {
    MeshRoutes {
        link: LINK.to_owned(),
        peer_routes: networks(remotes),
        ..MeshRoutes::default()
    }
}

fn wanted(mesh: Option<&MeshRoutes>) -> ReconcileInput {
    wanted_by(&Config::default(), LOCAL, BASE, mesh)
}

fn wanted_by(
    config: &Config,
    local: &str,
    base: &str,
    mesh: Option<&MeshRoutes>,
) -> ReconcileInput {
    let desired = Desired::new(config, &networks(local), &networks(base), mesh).unwrap();
    ReconcileInput {
        desired,
        pods: None,
    }
}

/// By which link a packet would leave, and from which address; nothing if there is no way.
fn way(node: &Node, to: &str, more: &[&str]) -> Option<(String, String)> {
    let line = [&["ip", "-o", "route", "get", to], more].concat();
    let asked = node.attempt(line).unwrap();
    let words: Vec<&str> = asked.stdout.split_whitespace().collect();
    let after = |key: &str| {
        let place = words.iter().position(|word| *word == key)?;
        words.get(place + 1).map(|word| (*word).to_owned())
    };
    if !asked.status.success() || words.first() == Some(&"unreachable") {
        return None;
    }
    Some((after("dev")?, after("src").unwrap_or_default()))
}

/// All rules, and what the mesh's table holds.
fn ways(scene: &Scene) -> String {
    // A table that was never used is an error to list.
    scene.run(
        "ip rule; ip -6 rule; exec 2>&-
         ip route show table 26723; ip -6 route show table 26723; true",
    )
}
