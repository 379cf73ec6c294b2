//! Checks that one netns reaches another, and under which source address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Result, ensure};

use super::mesh_cluster::JOIN_TIMEOUT;
use super::mesh_node::{AttachedPod, MeshNode, MeshPath};
use crate::netns::Netns;
use crate::ping_stream::PingStream;
use crate::pod::Pod;
use crate::traffic::{EchoServer, Family};
use crate::wait::{eventually, eventually_slowly};

const UDP_TIMEOUT: Duration = Duration::from_secs(2);
/// How late an answer may be on a busy machine.
const LATE_ANSWER: Duration = Duration::from_secs(5);
const MESH_MTU: usize = 1280;

pub fn family(ip: IpAddr) -> Family {
    if ip.is_ipv4() { Family::V4 } else { Family::V6 }
}

/// Connects over TCP; returns the source address that the server saw.
pub fn tcp(from: &impl Netns, to: &impl Netns, ip: IpAddr) -> Result<IpAddr> {
    let server = EchoServer::start(to, family(ip), 0)?;
    from.call_echo(SocketAddr::new(ip, server.port()?), "hello")
}

/// Sends a datagram and gets an answer; returns the source address that the server saw.
pub fn udp(from: &impl Netns, to: &impl Netns, ip: IpAddr) -> Result<IpAddr> {
    let any: IpAddr = match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let open = |ip: IpAddr| {
        let socket = UdpSocket::bind((ip, 0))?;
        socket.set_read_timeout(Some(UDP_TIMEOUT))?;
        Ok::<_, std::io::Error>(socket)
    };
    let (server, client) = (to.enter(|| open(ip))??, from.enter(|| open(any))??);
    let (address, mut buffer) = (server.local_addr()?, [0; 64]);
    client.send_to(b"request", address)?;
    let (length, source) = server.recv_from(&mut buffer)?;
    ensure!(&buffer[..length] == b"request", "another request");
    server.send_to(b"answer", source)?;
    let (length, answered) = client.recv_from(&mut buffer)?;
    ensure!(
        &buffer[..length] == b"answer" && answered == address,
        "another answer, from {answered}"
    );
    Ok(source.ip())
}

/// Pings with packets of this size that must not be fragmented; the error is ping's output.
pub fn ping_sized(from: &impl Netns, ip: IpAddr, bytes: usize) -> Result<(), String> {
    let headers = if ip.is_ipv4() { 28 } else { 48 };
    let (size, ip) = ((bytes - headers).to_string(), ip.to_string());
    let line = ["ping", "-n", "-c", "2", "-i", "0.2", "-W", "3", "-M", "do"];
    let line = line.into_iter().chain(["-s", &size, &ip]);
    match from.attempt(line) {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(output.stdout + &output.stderr),
        Err(error) => Err(format!("{error:#}")),
    }
}

/// Pings from one pod to all addresses of another without a pause.
#[derive(Debug)]
pub struct Pings(Vec<(IpAddr, PingStream)>);

impl Pings {
    /// Returns when every address has answered.
    pub fn start(from: &AttachedPod, to: &AttachedPod) -> Result<Self> {
        let ping = |ip: &IpAddr| Ok((*ip, PingStream::ping(&from.pod, *ip)?));
        let pings = Self(to.ips.iter().map(ping).collect::<Result<_>>()?);
        pings.await_answers()?;
        Ok(pings)
    }

    /// Waits for the next answer of each address.
    pub fn await_answers(&self) -> Result<()> {
        self.streams()
            .try_for_each(|stream| stream.await_answer(JOIN_TIMEOUT))
    }

    /// Waits for so many more answers of each address: 50 take at least a second.
    pub fn await_more_answers(&self, count: u64) -> Result<()> {
        let goals = self
            .streams()
            .map(|stream| (stream, stream.answers() + count));
        for (stream, goal) in goals.collect::<Vec<_>>() {
            eventually_slowly(JOIN_TIMEOUT, "more answers", || {
                (stream.answers() >= goal).then_some(())
            })?;
        }
        Ok(())
    }

    /// Forgets gaps and losses so far.
    pub fn reset(&self) {
        self.streams().for_each(PingStream::reset);
    }

    /// Asserts that every ping since the start, or the last reset, was answered, if late.
    #[track_caller]
    pub fn assert_none_lost(&self, what: &str) {
        for (to, stream) in &self.0 {
            let lost = stream.lost(LATE_ANSWER);
            let count = lost.len();
            assert!(
                lost.is_empty(),
                "{what}: {count} pings to {to} were lost: {lost:?}"
            );
        }
    }

    pub fn streams(&self) -> impl Iterator<Item = &PingStream> {
        self.0.iter().map(|(_, stream)| stream)
    }
}

/// Waits until these nodes need no DERP relay to reach each other: the relay is Headscale's and stops
/// with it. tailscaled looks for a direct path only while there is something to send.
pub fn await_direct(nodes: &[MeshNode]) -> Result<()> {
    for from in nodes {
        for to in nodes.iter().filter(|to| to.number != from.number) {
            eventually(JOIN_TIMEOUT * 3, "a direct path", || {
                (from.path_to(to).ok()? == MeshPath::Direct).then_some(())
            })?;
        }
    }
    Ok(())
}

/// Asserts that every pod reaches every other: over TCP, UDP and ICMP, by each family, with packets
/// up to the mesh MTU, and under its own source address.
#[track_caller]
pub fn assert_all_to_all(pods: &[AttachedPod]) {
    await_all_to_all(pods);
    for (from, to) in pairs(pods) {
        for ip in &to.ips {
            assert_pair((&from.pod, &from.ips), &to.pod, *ip);
        }
    }
}

/// Waits until every pod reaches every other over TCP under its own address. A node that has just
/// joined may not know a peer's DERP region yet, and WireGuard retries a handshake after 5 s.
///
/// # Panics
///
/// If a pair does not within [`JOIN_TIMEOUT`].
#[track_caller]
pub fn await_all_to_all(pods: &[AttachedPod]) {
    for (from, to) in pairs(pods) {
        for ip in &to.ips {
            let what = format!("{:?} reaches {ip}", from.ips);
            let reached = eventually(JOIN_TIMEOUT, &what, || {
                let source = tcp(&from.pod, &to.pod, *ip).ok()?;
                from.ips.contains(&source).then_some(())
            });
            reached.unwrap_or_else(|error| panic!("{error:#}"));
        }
    }
}

fn pairs(pods: &[AttachedPod]) -> impl Iterator<Item = (&AttachedPod, &AttachedPod)> {
    let others = |from: &AttachedPod| {
        let ips = from.ips.clone();
        pods.iter().filter(move |to| to.ips != ips)
    };
    pods.iter()
        .flat_map(move |from| others(from).map(move |to| (from, to)))
}

/// [`assert_all_to_all`] for one pod with these addresses and one address of another.
#[track_caller]
pub fn assert_pair((from, ips): (&Pod, &[IpAddr]), to: &Pod, ip: IpAddr) {
    let pair = format!("{ips:?} to {ip}");
    let source = tcp(from, to, ip).unwrap_or_else(|error| panic!("{pair}: {error:#}"));
    assert!(ips.contains(&source), "{pair}: seen as {source}");
    // UDP does not retransmit.
    let source = eventually(JOIN_TIMEOUT, &pair, || udp(from, to, ip).ok())
        .unwrap_or_else(|error| panic!("{error:#}"));
    assert!(ips.contains(&source), "{pair}: seen as {source}");
    ping_sized(from, ip, MESH_MTU).unwrap_or_else(|output| panic!("{pair}: {output}"));
    let output = ping_sized(from, ip, MESH_MTU + 1).expect_err("larger than the MTU");
    assert!(output.to_lowercase().contains("mtu"), "{pair}: {output}");
}
