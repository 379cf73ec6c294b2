//! Routes to pods of other nodes. The mesh interface is a veth to another node, or a TUN without a reader: what
//! encrypts behind it makes no difference here.

mod bridge_mode;
mod link_tuning;
mod many_nodes;
mod real_tailscaled;
mod restored_routes;
mod routing;
mod source_addresses;

use lab::{Netns, Node};
use node_config::Config;
use node_hostnet::{Desired, MeshRoutes, ReconcileInput};

use crate::fixture::{BASE, HostnetNode, LOCAL, networks};

/// The name of tailscaled's interface.
const LINK: &str = "headcni01";
const REMOTES: &str = "10.9.4.0/24,fd00:9:0:4::/64";
/// Pods of the other node, unused local addresses, and addresses of no node.
const REMOTE_PODS: [&str; 2] = ["10.9.4.5", "fd00:9:0:4::5"];
const UNUSED_LOCAL: [&str; 2] = ["10.9.3.200", "fd00:9:0:3::200"];
const UNASSIGNED: [&str; 2] = ["10.9.77.7", "fd00:9:0:77::7"];
/// The other node's tailnet addresses.
const PEER_TAILNET_IPS: [&str; 2] = ["100.64.0.2", "fd7a:115c:a1e0::2"];

/// A node with an underlay with a default route, and a mesh interface to another node.
struct Meshed {
    fixture: HostnetNode,
    /// Beyond the underlay.
    world: Node,
    peer: Node,
}

impl Meshed {
    fn new() -> Self {
        let meshed = Self::without_link();
        let (node, peer) = (&meshed.fixture.node, &meshed.peer);
        // A TUN has no duplicate address detection.
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

    /// Without the mesh interface.
    fn without_link() -> Self {
        let meshed = Self {
            fixture: HostnetNode::new(),
            world: Node::new("world").unwrap(),
            peer: Node::new("peer").unwrap(),
        };
        let (node, world) = (&meshed.fixture.node, &meshed.world);
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

    fn with_tun() -> Self {
        let meshed = Self::without_link();
        on(&meshed.fixture.node, MAKE_TUN);
        meshed
    }

    fn node(&self) -> &Node {
        &self.fixture.node
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

/// Interface and source address by which a packet would leave; `None` without a route.
fn route_to(node: &Node, to: &str, more: &[&str]) -> Option<(String, String)> {
    let line = [&["ip", "-o", "route", "get", to], more].concat();
    let asked = node.attempt(line).unwrap();
    let fields: Vec<&str> = asked.stdout.split_whitespace().collect();
    let after = |key: &str| {
        let place = fields.iter().position(|word| *word == key)?;
        fields.get(place + 1).map(|word| (*word).to_owned())
    };
    if !asked.status.success() || fields.first() == Some(&"unreachable") {
        return None;
    }
    Some((after("dev")?, after("src").unwrap_or_default()))
}

/// All rules, and the mesh's route table.
fn rules_and_routes(fixture: &HostnetNode) -> String {
    // Listing a table that was never used is an error.
    fixture.run(
        "ip rule; ip -6 rule; exec 2>&-
         ip route show table 26723; ip -6 route show table 26723; true",
    )
}
