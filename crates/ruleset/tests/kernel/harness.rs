//! A node with pods on a LAN with a neighbour, made by plain `ip`; servers and clients; `nft`.
//!
//! ```text
//! neighbour 192.0.2.2 ── lan0 ── 192.0.2.1 node ── hca, hcb ── pods a (.10) and b (.11)
//! ```

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use lab::{Netns, Node, Pod};
use net::Socket;
use ruleset::host_ports::{HostPort, Protocol};
use ruleset::{LINK_GROUP, Table};

const TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) const GATEWAY: &str = "10.244.1.1";
pub(crate) const GATEWAY6: &str = "fd00:1::1";
/// Of the host ends of pod veths.
pub(crate) const HOST_MAC: &str = "02:00:00:00:00:01";

pub(crate) struct Testbed {
    pub(crate) node: Node,
    pub(crate) neighbour: Node,
    pub(crate) socket: Socket,
}

impl Testbed {
    pub(crate) fn new() -> Self {
        let (node, neighbour) = (Node::new("n1").unwrap(), Node::new("lan").unwrap());
        for sysctl in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
            node.sysctl(sysctl, "1").unwrap();
        }
        // Duplicate address detection would delay IPv6 by two seconds.
        node.sysctl("net.ipv6.conf.default.accept_dad", "0")
            .unwrap();
        node.wire("lan0", "192.0.2.1/24", &neighbour, "192.0.2.2/24")
            .unwrap();
        let all = [
            ip(&node, "address add 2001:db8::1/64 dev lan0 nodad"),
            ip(&node, &format!("address add {GATEWAY}/32 dev lo")),
            ip(&node, &format!("address add {GATEWAY6}/128 dev lo")),
            ip(&neighbour, "address add 2001:db8::2/64 dev lan0 nodad"),
            ip(&neighbour, "route add 10.244.1.0/24 via 192.0.2.1"),
            ip(&neighbour, "route add fd00:1::/64 via 2001:db8::1"),
        ];
        assert!(all.iter().all(Result::is_ok), "{all:?}");
        install(&node);
        let socket = socket(&node);
        Self {
            node,
            neighbour,
            socket,
        }
    }

    /// A pod with the addresses that end in `number`, connected as the plugin does it.
    pub(crate) fn pod(&self, name: &str, number: u8) -> Pod {
        let pod = self.node.pod(name).unwrap();
        let (link, mac) = (format!("hc{name}"), format!("02:00:00:00:01:{number:02x}"));
        let (v4, v6) = (format!("10.244.1.{number}"), format!("fd00:1::{number:x}"));
        let on_node = [
            format!(
                "link add {link} address {HOST_MAC} group {LINK_GROUP} type veth \
                 peer name eth0 address {mac} netns {name}"
            ),
            format!("link set {link} up"),
            format!("route add {v4}/32 dev {link}"),
            format!("route add {v6}/128 dev {link}"),
            format!("neighbour add {v4} lladdr {mac} dev {link} nud permanent"),
            format!("neighbour add {v6} lladdr {mac} dev {link} nud permanent"),
        ];
        let in_pod = [
            "link set lo up".to_owned(),
            "link set eth0 up".to_owned(),
            format!("address add {v4}/32 dev eth0"),
            format!("address add {v6}/128 dev eth0 nodad"),
            format!("route add {GATEWAY} dev eth0"),
            format!("route add default via {GATEWAY}"),
            format!("route add {GATEWAY6} dev eth0"),
            format!("route add default via {GATEWAY6} dev eth0"),
            format!("neighbour add {GATEWAY} lladdr {HOST_MAC} dev eth0 nud permanent"),
            format!("neighbour add {GATEWAY6} lladdr {HOST_MAC} dev eth0 nud permanent"),
        ];
        for line in &on_node {
            ip(&self.node, line).unwrap();
        }
        for line in &in_pod {
            ip(&pod, line).unwrap();
        }
        // Without this the kernel itself would drop packets with the node's addresses.
        let accept_local = format!("net.ipv4.conf.{link}.accept_local");
        self.node.sysctl(&accept_local, "1").unwrap();
        pod
    }
}

pub(crate) fn socket(netns: &impl lab::Netns) -> Socket {
    netns.enter(Socket::netfilter).unwrap().unwrap()
}

/// A node with both of our tables.
pub(crate) fn node_with_tables() -> (Node, Socket) {
    let node = Node::new("n1").unwrap();
    install(&node);
    let socket = socket(&node);
    (node, socket)
}

pub(crate) fn install(node: &Node) {
    node.enter(|| ruleset::install(&Table::ALL, &[]))
        .unwrap()
        .unwrap();
}

/// Runs one line of `nft`.
pub(crate) fn nft(node: &Node, line: &str) {
    node.run(["nft", line]).unwrap();
}

/// The elements of a set or map as `nft` lists them, sorted.
pub(crate) fn listed(node: &Node, kind: &str, table: &str, name: &str) -> Vec<String> {
    let listing = node
        .run(["nft", "list", kind, "inet", table, name])
        .unwrap()
        .stdout;
    let Some((_, elements)) = listing.split_once("elements = {") else {
        return Vec::new();
    };
    let elements = elements.split('}').next().unwrap();
    let normalize = |element: &str| element.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut elements: Vec<String> = elements.split(',').map(normalize).collect();
    elements.sort();
    elements
}

/// Runs `ip` with these arguments.
pub(crate) fn ip(netns: &impl Netns, line: &str) -> Result<(), String> {
    let command = ["ip"].into_iter().chain(line.split_whitespace());
    netns
        .run(command)
        .map(drop)
        .map_err(|error| error.to_string())
}

pub(crate) fn host_port(
    host: Option<&str>,
    protocol: Protocol,
    port: u16,
    pod: &str,
    pod_port: u16,
) -> HostPort {
    HostPort {
        host: host.map(|host| host.parse().unwrap()),
        protocol,
        port,
        pod: pod.parse().unwrap(),
        pod_port,
    }
}

/// Answers TCP and UDP on this port of all addresses with its name and the address of the client.
pub(crate) fn serve(netns: &impl Netns, name: &'static str, port: u16) {
    serve_at(netns, name, &[&format!("[::]:{port}")]);
}

/// As [`serve`], on these addresses. A UDP server on all addresses may answer from another one than
/// was queried, which is another flow.
pub(crate) fn serve_at(netns: &impl Netns, name: &'static str, addresses: &[&str]) {
    for &address in addresses {
        let bind = || {
            (
                TcpListener::bind(address).unwrap(),
                UdpSocket::bind(address).unwrap(),
            )
        };
        let (listener, datagrams) = netns.enter(bind).unwrap();
        thread::spawn(move || {
            while let Ok((mut stream, peer)) = listener.accept() {
                // The client may have disconnected.
                let _ = stream.write_all(answer(name, peer).as_bytes());
            }
        });
        thread::spawn(move || answer_all(name, &datagrams));
    }
}

fn answer_all(name: &str, datagrams: &UdpSocket) {
    let mut bytes = [0; 64];
    while let Ok((_, peer)) = datagrams.recv_from(&mut bytes) {
        let _ = datagrams.send_to(answer(name, peer).as_bytes(), peer);
    }
}

fn answer(name: &str, peer: SocketAddr) -> String {
    format!("{name} saw {}", peer.ip().to_canonical())
}

/// The answer of a server: its name, and our address as it sees it.
pub(crate) fn query_tcp(netns: &impl Netns, to: &str) -> io::Result<String> {
    let to: SocketAddr = to.parse().unwrap();
    netns
        .enter(|| {
            let mut stream = TcpStream::connect_timeout(&to, TIMEOUT)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        })
        .unwrap()
}

/// As [`query_tcp`], with one datagram.
pub(crate) fn query_udp(netns: &impl Netns, to: &str) -> io::Result<String> {
    Client::new(netns, "[::]:0").query(to)
}

/// A UDP client with a fixed port.
pub(crate) struct Client(UdpSocket);

impl Client {
    pub(crate) fn new(netns: &impl Netns, from: &str) -> Self {
        let from: SocketAddr = from.parse().unwrap();
        let socket = netns.enter(|| UdpSocket::bind(from)).unwrap().unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self(socket)
    }

    pub(crate) fn query(&self, to: &str) -> io::Result<String> {
        let to: SocketAddr = to.parse().unwrap();
        let to = match (self.0.local_addr()?, to) {
            (SocketAddr::V6(_), SocketAddr::V4(to)) => {
                SocketAddr::new(to.ip().to_ipv6_mapped().into(), to.port())
            }
            _ => to,
        };
        self.0.send_to(b"?", to)?;
        let mut bytes = [0; 64];
        let length = self.0.recv(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
    }
}

pub(crate) fn reaches(from: &impl Netns, to: &str) -> bool {
    let line = ["ping", "-n", "-c", "1", "-W", "1", to];
    from.attempt(line).unwrap().status.success()
}
