//! A node with an attacker and a victim.

use lab::scenario::PluginNode;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use lab::frames::{Ethernet, Frame, Icmp, Ipv4, Ipv6, Mac};
use lab::{Capture, Netns, Pod, RawLink};
use serde_json::Value;

use crate::connections::{PATIENCE, seen_by_udp, udp_socket, unspecified};
use crate::networks::{host_link, ip};

/// A link-layer address that nobody has.
pub(super) const FORGED: Mac = Mac([2, 0, 0, 0xba, 0xd0, 1]);
/// Addresses that the node has besides the gateways'.
pub(super) const NODE: [&str; 2] = ["192.168.7.2", "fd00:7::2"];
pub(super) const GATEWAY: [&str; 2] = ["10.9.0.1", "fd00:9::1"];
/// Where those who can be attacked listen.
pub(super) const PORT: u16 = 5000;

/// A pod that is not what it should be, or one that suffers from it.
pub(super) struct Party {
    pub(super) pod: Pod,
    /// Of IPv4, and of IPv6 if it has one.
    pub(super) ips: Vec<IpAddr>,
    pub(super) mac: Mac,
    /// The host's end of its link.
    pub(super) host_link: String,
    pub(super) host_mac: Mac,
}

impl Party {
    fn new(plugin: &PluginNode, name: &str, conf: &Value) -> Self {
        let (pod, result) = plugin.attached(name, conf);
        let mac = |index: usize| -> Mac {
            let mac = result["interfaces"][index]["mac"].as_str();
            mac.unwrap().parse().unwrap()
        };
        let count = result["ips"].as_array().unwrap().len();
        let ips = (0..count).map(|index| ip(&result, index).parse().unwrap());
        Self {
            pod,
            ips: ips.collect(),
            host_mac: mac(0),
            mac: mac(1),
            host_link: host_link(&result),
        }
    }

    pub(super) fn ipv4(&self) -> Ipv4Addr {
        self.ips.iter().find_map(|ip| as_ipv4(*ip)).unwrap()
    }

    pub(super) fn ipv6(&self) -> Ipv6Addr {
        self.ips.iter().find_map(|ip| as_ipv6(*ip)).unwrap()
    }
}

fn as_ipv4(ip: IpAddr) -> Option<Ipv4Addr> {
    match ip {
        IpAddr::V4(ip) => Some(ip),
        IpAddr::V6(_) => None,
    }
}

fn as_ipv6(ip: IpAddr) -> Option<Ipv6Addr> {
    match ip {
        IpAddr::V6(ip) => Some(ip),
        IpAddr::V4(_) => None,
    }
}

/// Who is on the node, and the attacker's hand on its own link.
pub(super) struct Stage<'a> {
    pub(super) plugin: &'a PluginNode,
    pub(super) attacker: Party,
    pub(super) victim: Party,
    link: RawLink,
}

impl<'a> Stage<'a> {
    pub(super) fn new(plugin: &'a PluginNode, conf: &Value) -> Self {
        Self::with_attacker(plugin, conf, conf)
    }

    /// A stage whose attacker is attached in a way of its own.
    pub(super) fn with_attacker(plugin: &'a PluginNode, attacker: &Value, conf: &Value) -> Self {
        for address in NODE {
            let line = ["ip", "address", "add", address, "dev", "lo", "nodad"];
            plugin.node.run(line).unwrap();
        }
        let attacker = Party::new(plugin, "attacker", attacker);
        let victim = Party::new(plugin, "victim", conf);
        let link = RawLink::open(&attacker.pod, "eth0").unwrap();
        Self {
            plugin,
            attacker,
            victim,
            link,
        }
    }

    /// From the attacker to the node, as it should be.
    pub(super) fn ethernet(&self) -> Ethernet {
        Ethernet::new(self.attacker.mac, self.attacker.host_mac)
    }

    /// From the attacker to all on its link.
    pub(super) fn broadcast(&self) -> Ethernet {
        Ethernet::new(self.attacker.mac, Mac::BROADCAST)
    }

    pub(super) fn send(&self, frame: &[u8]) {
        self.link.send(frame).unwrap();
    }

    /// Returns when the node has dealt with all that was sent before.
    pub(super) fn settle(&self) {
        let mut capture = Capture::start(&self.attacker.pod, "eth0").unwrap();
        let gateway = GATEWAY[0].parse().unwrap();
        let ping = Icmp::echo_request(0xace, 1, b"mark");
        let packet = Ipv4::new(self.attacker.ipv4(), gateway).icmp(ping);
        self.send(&self.ethernet().ipv4(&packet));
        let answer = capture.first(PATIENCE, |frame| frame.icmp_type() == Some(0));
        answer.unwrap();
    }

    /// A datagram of the attacker with any source, in a frame to the node.
    pub(super) fn datagram(
        &self,
        source: IpAddr,
        (to, port): (IpAddr, u16),
        word: &[u8],
    ) -> Vec<u8> {
        match (source, to) {
            (IpAddr::V4(source), IpAddr::V4(to)) => {
                let wire = if to.is_broadcast() || to.is_multicast() {
                    self.broadcast()
                } else {
                    self.ethernet()
                };
                wire.ipv4(&Ipv4::new(source, to).udp(4000, port, word))
            }
            (IpAddr::V6(source), IpAddr::V6(to)) => {
                let wire = if to.is_multicast() {
                    Ethernet::new(self.attacker.mac, Mac::of_multicast(to))
                } else {
                    self.ethernet()
                };
                wire.ipv6(&Ipv6::new(source, to).udp(4000, port, word))
            }
            pair => unreachable!("no packet has two families: {pair:?}"),
        }
    }

    /// Whether the victim gets a datagram, seen on its link.
    pub(super) fn reaches_victim(&self, source: IpAddr, (to, port): (IpAddr, u16)) -> bool {
        let mut capture = Capture::start(&self.victim.pod, "eth0").unwrap();
        self.send(&self.datagram(source, (to, port), b"lie"));
        let at = usize::from(to.is_ipv6());
        let truth = (self.victim.ips[at], PORT);
        self.send(&self.datagram(self.attacker.ips[at], truth, b"truth"));
        let says =
            |frame: &Frame, word: &[u8]| frame.udp_payload().is_some_and(|p| p.starts_with(word));
        let seen = capture.until(PATIENCE, |frame| says(frame, b"truth"));
        seen.unwrap().iter().any(|frame| says(frame, b"lie"))
    }

    /// Whether a listener of the node gets a datagram.
    pub(super) fn reaches_node(&self, source: IpAddr, (to, port): (IpAddr, u16)) -> bool {
        let listener = udp_socket(&self.plugin.node, unspecified(to), port);
        // Like the attack in all but what makes it one.
        let marking = udp_socket(&self.plugin.node, unspecified(to), 0);
        self.send(&self.datagram(source, (to, port), b"lie"));
        let at = usize::from(to.is_ipv6());
        let gateway: IpAddr = GATEWAY[at].parse().unwrap();
        let mark = (gateway, marking.local_addr().unwrap().port());
        self.send(&self.datagram(self.attacker.ips[at], mark, b"truth"));
        assert_eq!(words(&marking, true).unwrap(), b"truth");
        words(&listener, false).is_some_and(|word| word == b"lie")
    }

    /// Takes the rules away, and all that the kernel has against forged sources.
    pub(super) fn disarm(&self) {
        let node = &self.plugin.node;
        node.run(["nft", "delete", "table", "inet", "headcni"])
            .unwrap();
        for key in ["accept_local", "route_localnet"] {
            node.sysctl(&format!("net.ipv4.conf.all.{key}"), "1")
                .unwrap();
        }
    }

    /// Asserts that victim and node talk to each other, and to the attacker as well.
    #[track_caller]
    pub(super) fn assert_traffic_goes_on(&self) {
        let Self {
            plugin,
            attacker,
            victim,
            ..
        } = self;
        for (at, to) in victim.ips.iter().copied().enumerate() {
            seen_by_udp(&plugin.node, &victim.pod, to);
            let gateway = GATEWAY[at].parse().unwrap();
            assert_eq!(seen_by_udp(&victim.pod, &plugin.node, gateway), to);
            let other = attacker.ips[at];
            assert_eq!(seen_by_udp(&attacker.pod, &victim.pod, to), other);
            assert_eq!(seen_by_udp(&victim.pod, &attacker.pod, other), to);
        }
    }
}

/// The next datagram's words; whether to wait for them is the caller's choice.
fn words(socket: &UdpSocket, is_waiting: bool) -> Option<Vec<u8>> {
    socket.set_nonblocking(!is_waiting).unwrap();
    let mut buffer = [0; 1000];
    loop {
        match socket.recv(&mut buffer) {
            Ok(length) => return Some(buffer[..length].to_vec()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}
