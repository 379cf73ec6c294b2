//! Ways to talk from one namespace to another, and what is checked on them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use lab::{
    AttachedPod, EchoServer, Family, JOIN_TIMEOUT, MeshNode, MeshPath, Netns, Pod, PingStream, eventually,
    eventually_slowly,
};

const PATIENCE: Duration = Duration::from_secs(2);
/// How late an answer may be on a busy machine.
const STRAGGLERS: Duration = Duration::from_secs(5);
/// What the mesh carries, and all that is in front of a ping's own bytes.
const MTU: usize = 1280;

pub(crate) fn family(ip: IpAddr) -> Family {
    if ip.is_ipv4() { Family::V4 } else { Family::V6 }
}

/// Calls an address over TCP; the address that it was called from.
pub(crate) fn tcp(from: &impl Netns, to: &impl Netns, ip: IpAddr) -> anyhow::Result<IpAddr> {
    let server = EchoServer::start(to, family(ip), 0)?;
    from.call_echo(SocketAddr::new(ip, server.port()?), "hello")
}

/// Asks an address over UDP; the address that it was asked from.
pub(crate) fn udp(from: &impl Netns, to: &impl Netns, ip: IpAddr) -> anyhow::Result<IpAddr> {
    let any: IpAddr = match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let open = |ip: IpAddr| {
        let socket = UdpSocket::bind((ip, 0))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok::<_, std::io::Error>(socket)
    };
    let (server, client) = (to.enter(|| open(ip))??, from.enter(|| open(any))??);
    let (address, mut buffer) = (server.local_addr()?, [0; 64]);
    client.send_to(b"ask", address)?;
    let (length, seen) = server.recv_from(&mut buffer)?;
    anyhow::ensure!(&buffer[..length] == b"ask", "something else was asked");
    server.send_to(b"answer", seen)?;
    let (length, answered) = client.recv_from(&mut buffer)?;
    anyhow::ensure!(
        &buffer[..length] == b"answer" && answered == address,
        "{answered} said something else"
    );
    Ok(seen.ip())
}

/// Pings with packets of so many bytes, which nobody may cut in pieces; what ping says if they don't
/// get through.
pub(crate) fn ping_sized(from: &impl Netns, ip: IpAddr, bytes: usize) -> Result<(), String> {
    let heads = if ip.is_ipv4() { 28 } else { 48 };
    let (size, ip) = ((bytes - heads).to_string(), ip.to_string());
    let line = ["ping", "-n", "-c", "2", "-i", "0.2", "-W", "3", "-M", "do"];
    let line = line.into_iter().chain(["-s", &size, &ip]);
    let output = from.attempt(line).unwrap();
    if output.status.success() {
        return Ok(());
    }
    Err(output.stdout + &output.stderr)
}

/// Pings from one pod to all addresses of another, all the time.
pub(crate) struct Pings(Vec<(IpAddr, PingStream)>);

impl Pings {
    /// Returns when every address has answered.
    pub(crate) fn start(from: &AttachedPod, to: &AttachedPod) -> Self {
        let ping = |ip: &IpAddr| (*ip, PingStream::ping(&from.pod, *ip).unwrap());
        let pings = Self(to.ips.iter().map(ping).collect());
        pings.await_answers();
        pings
    }

    /// Waits for the next answer of each address.
    pub(crate) fn await_answers(&self) {
        for pulse in self.pulses() {
            pulse.await_answer(JOIN_TIMEOUT).unwrap();
        }
    }

    /// Waits for so many more answers of each address: 50 of them take a second at the least.
    pub(crate) fn await_more_answers(&self, count: u64) {
        let all = self.pulses().map(|pulse| (pulse, pulse.answers() + count));
        for (pulse, until) in all.collect::<Vec<_>>() {
            eventually_slowly(JOIN_TIMEOUT, "more answers", || {
                (pulse.answers() >= until).then_some(())
            })
            .unwrap();
        }
    }

    /// Forgets all that was until now.
    pub(crate) fn reset(&self) {
        self.pulses().for_each(PingStream::reset);
    }

    /// Fails if there is a ping since the start, or the last reset, that was not answered, not even late.
    #[track_caller]
    pub(crate) fn check_none_lost(&self, what: &str) {
        for (to, pulse) in &self.0 {
            let lost = pulse.lost(STRAGGLERS);
            let count = lost.len();
            assert!(
                lost.is_empty(),
                "{what}: {count} pings to {to} were lost: {lost:?}"
            );
        }
    }

    pub(crate) fn pulses(&self) -> impl Iterator<Item = &PingStream> {
        self.0.iter().map(|(_, pulse)| pulse)
    }
}

/// Waits until these nodes need no relay to reach each other: the relay is Headscale's, and goes with it.
/// Without anything to send no other way is looked for.
pub(crate) fn await_direct(members: &[MeshNode]) {
    for from in members {
        for to in members.iter().filter(|to| to.number != from.number) {
            eventually(JOIN_TIMEOUT * 3, "a direct way", || {
                (from.path_to(to).ok()? == MeshPath::Direct).then_some(())
            })
            .unwrap();
        }
    }
}

/// Every pod reaches every other: over TCP, UDP and ICMP, by each family, with packets as large as the
/// mesh carries; and everybody sees the pods' own addresses.
pub(crate) fn check_all_to_all(pods: &[AttachedPod]) {
    await_all_to_all(pods);
    for (from, to) in pairs(pods) {
        for ip in &to.ips {
            check_pair((&from.pod, &from.ips), &to.pod, *ip);
        }
    }
}

/// Every pod reaches every other under its own address, as soon as the mesh lets it: a node that has just
/// joined may not know the other's relay yet, and WireGuard tries again after 5 s only.
pub(crate) fn await_all_to_all(pods: &[AttachedPod]) {
    for (from, to) in pairs(pods) {
        for ip in &to.ips {
            eventually(JOIN_TIMEOUT, "pods talk again", || {
                let seen = tcp(&from.pod, &to.pod, *ip).ok()?;
                from.ips.contains(&seen).then_some(())
            })
            .unwrap();
        }
    }
}

fn pairs<'p, 'a>(
    pods: &'p [AttachedPod],
) -> impl Iterator<Item = (&'p AttachedPod, &'p AttachedPod)> {
    let others = |from: &'p AttachedPod| pods.iter().filter(|to| to.ips != from.ips);
    pods.iter()
        .flat_map(move |from| others(from).map(move |to| (from, to)))
}

/// The same for one pod, which has these addresses, and an address of another one.
pub(crate) fn check_pair((from, ips): (&Pod, &[IpAddr]), to: &Pod, ip: IpAddr) {
    let pair = format!("{ips:?} to {ip}");
    let seen = tcp(from, to, ip).unwrap_or_else(|error| panic!("{pair}: {error:#}"));
    assert!(ips.contains(&seen), "{pair}: seen as {seen}");
    // A datagram may be lost, and is not sent again by anybody else.
    let seen = eventually(JOIN_TIMEOUT, &pair, || udp(from, to, ip).ok()).unwrap();
    assert!(ips.contains(&seen), "{pair}: seen as {seen}");
    ping_sized(from, ip, MTU).unwrap_or_else(|said| panic!("{pair}: {said}"));
    let said = ping_sized(from, ip, MTU + 1).unwrap_err();
    assert!(said.to_lowercase().contains("mtu"), "{pair}: {said}");
}
