//! The underlay network: one switch, and routers with NAT.
//!
//! It has no uplink. Every node has a default route to the switch, which forwards nothing: a packet to
//! another address leaves the node, and a [`Sniffer`](crate::Sniffer) sees it on the wire.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ipnet::IpNet;

use crate::netns::Netns;
use crate::node::Node;
use crate::sniffer::Sniffer;

/// The node's interface on the underlay.
pub const UPLINK: &str = "eth0";

const BRIDGE: &str = "br0";
/// The switch's own address, where default routes point to.
const SWITCH_HOST: u8 = 254;

/// A node's connection to a switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    pub v4: Ipv4Addr,
    /// `None` behind a [`Nat`].
    pub v6: Option<Ipv6Addr>,
    /// The veth on the switch or router.
    link: String,
}

/// A switch: 10.99.0.0/24 and `fd99::/64`.
#[derive(Clone, Debug)]
pub struct Underlay {
    switch: Arc<Switch>,
}

impl Underlay {
    pub fn new() -> Result<Self> {
        let node = Node::new("switch")?;
        let switch = Switch::new(node, SWITCH_HOST, |host| Port {
            v4: Ipv4Addr::new(10, 99, 0, host),
            v6: Some(Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, host.into())),
            link: format!("port{host}"),
        })?;
        Ok(Self {
            switch: Arc::new(switch),
        })
    }

    pub fn switch(&self) -> &Node {
        &self.switch.node
    }

    /// Starts to sniff every cable.
    pub fn sniff(&self, pods: &[IpNet]) -> Result<Sniffer> {
        Sniffer::start(&self.switch.node, pods)
    }

    /// Connects a node: its [`UPLINK`] gets the next free addresses and default routes.
    pub fn plug(&self, node: &Node) -> Result<Port> {
        self.switch.plug(node)
    }

    /// A router with a network behind it.
    pub fn nat(&self, kind: NatKind) -> Result<Nat> {
        Nat::new(self, kind)
    }

    /// Sets the switch's end of a node's cable down.
    pub fn unplug(&self, port: &Port) -> Result<()> {
        self.switch.unplug(port)
    }

    pub fn replug(&self, port: &Port) -> Result<()> {
        self.switch.replug(port)
    }

    /// Delays packets to a node. Needs a kernel with netem.
    pub fn delay(&self, port: &Port, delay: Duration) -> Result<()> {
        let delay = format!("{}us", delay.as_micros());
        let line = [
            "tc", "qdisc", "replace", "dev", &port.link, "root", "netem", "delay", &delay,
        ];
        self.switch()
            .run(line)
            .map(drop)
            .with_context(|| format!("delay packets to {} (needs CONFIG_NET_SCH_NETEM)", port.v4))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NatKind {
    /// Endpoint-independent mapping: hole punching works.
    Easy,
    /// Endpoint-dependent mapping: two nodes behind such routers need a relay.
    Hard,
}

/// A router with masquerading, and the network behind it: 192.168.N.0/24, without IPv6.
#[derive(Clone, Debug)]
pub struct Nat {
    switch: Arc<Switch>,
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
        Ok(Self {
            switch: Arc::new(switch),
            outside,
        })
    }

    pub fn router(&self) -> &Node {
        &self.switch.node
    }

    /// The router's port on the underlay.
    pub fn outside(&self) -> &Port {
        &self.outside
    }

    /// Starts to sniff the cables behind the router, and its own.
    pub fn sniff(&self, pods: &[IpNet]) -> Result<Sniffer> {
        Sniffer::start(&self.switch.node, pods)
    }

    pub fn plug(&self, node: &Node) -> Result<Port> {
        self.switch.plug(node)
    }

    pub fn unplug(&self, port: &Port) -> Result<()> {
        self.switch.unplug(port)
    }

    pub fn replug(&self, port: &Port) -> Result<()> {
        self.switch.replug(port)
    }
}

/// A node with a bridge.
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
        configure(&node, BRIDGE, &gateway)?;
        Ok(Self {
            node,
            gateway,
            address: Box::new(address),
            // Lower host numbers are for gateways.
            next: AtomicU8::new(11),
        })
    }

    fn plug(&self, node: &Node) -> Result<Port> {
        let host = self.next.fetch_add(1, Ordering::Relaxed);
        ensure!(host < SWITCH_HOST, "{} has no free port", self.node.name());
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
        configure(node, UPLINK, port)?;
        let gateway = self.gateway.v4.to_string();
        node.run(["ip", "route", "add", "default", "via", &gateway])?;
        if let Some(gateway) = self.gateway.v6 {
            let gateway = gateway.to_string();
            node.run(["ip", "-6", "route", "add", "default", "via", &gateway])?;
        }
        Ok(())
    }

    fn unplug(&self, port: &Port) -> Result<()> {
        self.node.run(["ip", "link", "set", &port.link, "down"])?;
        Ok(())
    }

    fn replug(&self, port: &Port) -> Result<()> {
        self.node.run(["ip", "link", "set", &port.link, "up"])?;
        Ok(())
    }
}

impl fmt::Debug for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Switch").field(&self.node).finish()
    }
}

/// Sets an interface up with a port's addresses.
fn configure(node: &Node, link: &str, port: &Port) -> Result<()> {
    let v4 = format!("{}/24", port.v4);
    node.run(["ip", "address", "add", &v4, "dev", link])?;
    if let Some(v6) = port.v6 {
        // Duplicate address detection would delay it by two seconds.
        let v6 = format!("{v6}/64");
        node.run(["ip", "address", "add", &v6, "dev", link, "nodad"])?;
    }
    node.run(["ip", "link", "set", link, "up"])?;
    Ok(())
}
