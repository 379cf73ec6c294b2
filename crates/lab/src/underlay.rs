//! The network that nodes have before there is a mesh: one switch, and routers that translate.
//!
//! No wire leads out of it. Every node has a default route all the same, to the switch, which
//! forwards nothing: so a packet to somewhere else is not refused where it is made, but comes out
//! on the wire, where a [`Sniffer`](crate::Sniffer) sees it.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ipnet::IpNet;

use crate::netns::Netns;
use crate::node::Node;
use crate::sniffer::Sniffer;

/// The link of a node that leads to the underlay.
pub const UPLINK: &str = "eth0";

const BRIDGE: &str = "br0";
/// What the switch has, and no node: the default route leads here.
const NOWHERE: u8 = 254;

/// Where a node is plugged in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// The node's address.
    pub v4: Ipv4Addr,
    /// Its address of the other family. Behind a [`Nat`] there is none.
    pub v6: Option<Ipv6Addr>,
    /// The other end of its cable, on the switch or router.
    link: String,
}

/// A switch with cables to nodes: 10.99.0.0/24 and `fd99::/64`.
#[derive(Debug)]
pub struct Underlay {
    switch: Switch,
}

impl Underlay {
    /// A switch with nothing plugged in.
    pub fn new() -> Result<Self> {
        let node = Node::new("switch")?;
        let switch = Switch::new(node, NOWHERE, |host| Port {
            v4: Ipv4Addr::new(10, 99, 0, host),
            v6: Some(Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, host.into())),
            link: format!("port{host}"),
        })?;
        Ok(Self { switch })
    }

    /// The switch itself. Its links are the other ends of the cables.
    pub fn switch(&self) -> &Node {
        &self.switch.node
    }

    /// Watches every cable from now on, for the addresses of pods in clear.
    pub fn watch(&self, pods: &[IpNet]) -> Result<Sniffer> {
        Sniffer::start(&self.switch.node, pods)
    }

    /// Plugs a node in: its [`UPLINK`] gets the next free addresses, and default routes.
    pub fn plug(&self, node: &Node) -> Result<Port> {
        self.switch.plug(node)
    }

    /// A router with a network of its own behind it.
    pub fn nat(&self, kind: NatKind) -> Result<Nat> {
        Nat::new(self, kind)
    }

    /// Pulls a node's cable: its link stays up, but there is nobody at the other end.
    pub fn cut(&self, port: &Port) -> Result<()> {
        self.switch.cut(port)
    }

    /// Puts a node's cable back.
    pub fn mend(&self, port: &Port) -> Result<()> {
        self.switch.mend(port)
    }

    /// Makes all that comes to a node come later. This needs a kernel with netem.
    pub fn delay(&self, port: &Port, delay: Duration) -> Result<()> {
        let delay = format!("{}us", delay.as_micros());
        let line = [
            "tc", "qdisc", "replace", "dev", &port.link, "root", "netem", "delay", &delay,
        ];
        self.switch().run(line).map(drop).with_context(|| {
            format!(
                "slow the cable of {} down (CONFIG_NET_SCH_NETEM is needed)",
                port.v4
            )
        })
    }
}

/// How a router translates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NatKind {
    /// All peers see a node's socket at the same port, so those who call each other at once meet.
    Easy,
    /// Each peer sees another port: two nodes behind such routers need a relay.
    Hard,
}

/// A router on the underlay, and the network behind it: 192.168.N.0/24, without IPv6.
///
/// What nodes send is masqueraded; nobody can call them.
#[derive(Debug)]
pub struct Nat {
    switch: Switch,
    outside: Port,
}

impl Nat {
    fn new(underlay: &Underlay, kind: NatKind) -> Result<Self> {
        let router = Node::new("router")?;
        let outside = underlay.plug(&router)?;
        let [.., net] = outside.v4.octets();
        router.sysctl("net.ipv4.ip_forward", "1")?;
        let masquerade = match kind {
            NatKind::Easy => "masquerade",
            NatKind::Hard => "masquerade fully-random",
        };
        let rules = format!(
            "table ip nat {{
                 chain out {{
                     type nat hook postrouting priority srcnat
                     oifname {UPLINK} {masquerade}
                 }}
                 chain through {{
                     type filter hook forward priority filter; policy drop
                     iifname {BRIDGE} accept
                     ct state established,related accept
                 }}
             }}"
        );
        router.write("/run/nat.nft", rules)?;
        router.run(["nft", "-f", "/run/nat.nft"])?;
        let switch = Switch::new(router, 1, move |host| Port {
            v4: Ipv4Addr::new(192, 168, net, host),
            v6: None,
            link: format!("port{host}"),
        })?;
        Ok(Self { switch, outside })
    }

    /// The router itself.
    pub fn router(&self) -> &Node {
        &self.switch.node
    }

    /// The router's own place on the underlay.
    pub fn outside(&self) -> &Port {
        &self.outside
    }

    /// Watches the router's cables, those of the network behind it and its own, from now on.
    pub fn watch(&self, pods: &[IpNet]) -> Result<Sniffer> {
        Sniffer::start(&self.switch.node, pods)
    }

    /// Plugs a node in behind the router.
    pub fn plug(&self, node: &Node) -> Result<Port> {
        self.switch.plug(node)
    }

    /// Pulls a node's cable.
    pub fn cut(&self, port: &Port) -> Result<()> {
        self.switch.cut(port)
    }

    /// Puts a node's cable back.
    pub fn mend(&self, port: &Port) -> Result<()> {
        self.switch.mend(port)
    }
}

/// A node with a bridge that others are plugged into.
struct Switch {
    node: Node,
    gateway: Port,
    address: Box<dyn Fn(u8) -> Port + Send + Sync>,
    next: AtomicU8,
}

impl Switch {
    fn new(
        node: Node,
        gateway: u8,
        address: impl Fn(u8) -> Port + Send + Sync + 'static,
    ) -> Result<Self> {
        node.run(["ip", "link", "add", BRIDGE, "type", "bridge"])?;
        let gateway = address(gateway);
        give(&node, BRIDGE, &gateway)?;
        Ok(Self {
            node,
            gateway,
            address: Box::new(address),
            // Lower ones are for gateways.
            next: AtomicU8::new(11),
        })
    }

    fn plug(&self, node: &Node) -> Result<Port> {
        let host = self.next.fetch_add(1, Ordering::Relaxed);
        ensure!(host < NOWHERE, "{} has no port left", self.node.name());
        let port = (self.address)(host);
        self.connect(node, &port)
            .with_context(|| format!("plug {} into {}", node.name(), self.node.name()))?;
        Ok(port)
    }

    fn connect(&self, node: &Node, port: &Port) -> Result<()> {
        let pid = node.holder_pid().to_string();
        let pair = ["type", "veth", "peer", "name", UPLINK, "netns", &pid];
        let add = ["ip", "link", "add", &port.link];
        self.node.run(add.iter().chain(&pair))?;
        self.node
            .run(["ip", "link", "set", &port.link, "master", BRIDGE, "up"])?;
        give(node, UPLINK, port)?;
        let gateway = self.gateway.v4.to_string();
        node.run(["ip", "route", "add", "default", "via", &gateway])?;
        if let Some(gateway) = self.gateway.v6 {
            let gateway = gateway.to_string();
            node.run(["ip", "-6", "route", "add", "default", "via", &gateway])?;
        }
        Ok(())
    }

    fn cut(&self, port: &Port) -> Result<()> {
        self.node.run(["ip", "link", "set", &port.link, "down"])?;
        Ok(())
    }

    fn mend(&self, port: &Port) -> Result<()> {
        self.node.run(["ip", "link", "set", &port.link, "up"])?;
        Ok(())
    }
}

impl fmt::Debug for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Switch").field(&self.node).finish()
    }
}

/// Sets a link up with a port's addresses.
fn give(node: &Node, link: &str, port: &Port) -> Result<()> {
    let v4 = format!("{}/24", port.v4);
    node.run(["ip", "address", "add", &v4, "dev", link])?;
    if let Some(v6) = port.v6 {
        // Duplicate address detection would hold it back for two seconds.
        let v6 = format!("{v6}/64");
        node.run(["ip", "address", "add", &v6, "dev", link, "nodad"])?;
    }
    node.run(["ip", "link", "set", link, "up"])?;
    Ok(())
}
