//! hostPorts: what arrives for a port of the node goes on to a pod.
//!
//! They are elements of maps in the table `inet headcni-ports`, whose rules are the same whatever
//! is published. A port that is published on one address is in `by_address`, else in `by_port`;
//! the former wins. A pod that is reached by a hostPort is in `hairpin` as well, so that it can
//! reach itself that way.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use net::nft::{self, Element, Existing, Set, Transaction, concatenate, ip_of, octets};
use net::{Errno, NetError, Socket, conntrack};

use crate::PORTS_TABLE;

/// How often a port is tried for that was taken, and then free again.
const MAX_ROUNDS: usize = 100;

/// The transport of a hostPort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// TCP
    Tcp,
    /// UDP
    Udp,
    /// SCTP
    Sctp,
}

impl Protocol {
    const ALL: [Self; 3] = [Self::Tcp, Self::Udp, Self::Sctp];

    /// Its number in an IP header.
    fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        })
    }
}

/// A port of the node that leads to a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort {
    /// The address of the node that it is published on; nothing, `0.0.0.0` or `::` means every
    /// one of the pod's family but the loopback.
    pub host: Option<IpAddr>,
    /// The transport.
    pub protocol: Protocol,
    /// The port of the node.
    pub port: u16,
    /// The pod's address.
    pub pod: IpAddr,
    /// The pod's port.
    pub pod_port: u16,
}

impl HostPort {
    /// The same with every way to say "every address" being one.
    fn normal(self) -> Self {
        Self {
            host: self.host.filter(|host| !host.is_unspecified()),
            ..self
        }
    }

    fn has_one_family(&self) -> bool {
        self.host
            .is_none_or(|host| host.is_ipv4() == self.pod.is_ipv4())
    }

    fn set(&self) -> Set<'static> {
        let family = Family::of(self.pod);
        match self.normal().host {
            Some(_) => family.by_address,
            None => family.by_port,
        }
    }

    fn key(&self) -> Vec<u8> {
        let (protocol, port) = ([self.protocol.number()], self.port.to_be_bytes());
        match self.normal().host {
            Some(host) => concatenate(&[&octets(host), &protocol, &port]),
            None => concatenate(&[&protocol, &port]),
        }
    }

    fn value(&self) -> Vec<u8> {
        concatenate(&[&octets(self.pod), &self.pod_port.to_be_bytes()])
    }

    fn element(&self) -> Element {
        Element::entry(self.key(), self.value())
    }

    fn read(element: &Element) -> Option<Self> {
        let fields = element.key.len().checked_sub(8)?;
        let (host, rest) = element.key.split_at(fields);
        let target = target(element)?;
        Some(Self {
            host: ip_of(host),
            protocol: Protocol::ALL
                .into_iter()
                .find(|one| one.number() == rest[0])?,
            port: u16::from_be_bytes([rest[4], rest[5]]),
            pod: target.ip(),
            pod_port: target.port(),
        })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} port {}", self.protocol, self.port)?;
        match self.host {
            Some(host) => write!(formatter, " of {host}"),
            None => Ok(()),
        }
    }
}

/// Where an element of a map leads.
fn target(element: &Element) -> Option<SocketAddr> {
    let value = element.value.as_deref()?;
    let (address, port) = value.split_at(value.len().checked_sub(4)?);
    let port = u16::from_be_bytes([port[0], port[1]]);
    Some(SocketAddr::new(ip_of(address)?, port))
}

/// Why hostPorts could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum HostPortError {
    /// Somebody else has the port.
    #[error("{port} cannot lead to {}: it leads to {holder}", port.pod)]
    Taken {
        /// The one that was asked for.
        port: HostPort,
        /// Where it leads now.
        holder: SocketAddr,
    },
    /// The host's address and the pod's are of different families.
    #[error("{port} cannot lead to {}: one is IPv4, the other IPv6", port.pod)]
    MixedFamilies {
        /// The one that was asked for.
        port: HostPort,
    },
    /// The table is missing: [`install`](crate::install) it.
    #[error("there is no nftables table inet {PORTS_TABLE}")]
    NoTable,
    /// The kernel said no.
    #[error(transparent)]
    Net(NetError),
}

impl From<NetError> for HostPortError {
    fn from(error: NetError) -> Self {
        if error.is(Errno::NOENT) {
            Self::NoTable
        } else {
            Self::Net(error)
        }
    }
}

/// The sets and maps for one family of addresses.
struct Family {
    by_address: Set<'static>,
    by_port: Set<'static>,
    hairpin: Set<'static>,
}

const fn set(name: &'static str) -> Set<'static> {
    Set {
        table: PORTS_TABLE,
        name,
    }
}

static IPV4: Family = Family {
    by_address: set("by_address4"),
    by_port: set("by_port4"),
    hairpin: set("hairpin4"),
};

static IPV6: Family = Family {
    by_address: set("by_address6"),
    by_port: set("by_port6"),
    hairpin: set("hairpin6"),
};

impl Family {
    fn of(address: IpAddr) -> &'static Self {
        match address {
            IpAddr::V4(_) => &IPV4,
            IpAddr::V6(_) => &IPV6,
        }
    }

    fn published(&self, socket: &Socket) -> Result<Vec<HostPort>, NetError> {
        let mut elements = nft::elements(socket, self.by_address)?;
        elements.extend(nft::elements(socket, self.by_port)?);
        Ok(elements.iter().filter_map(HostPort::read).collect())
    }
}

/// The element that lets a pod reach itself.
fn hairpin(pod: IpAddr) -> Element {
    Element::member(concatenate(&[&octets(pod), &octets(pod)]))
}

/// Publishes all of them or none. One that is published already is fine.
pub fn add(socket: &Socket, ports: &[HostPort]) -> Result<(), HostPortError> {
    check(ports)?;
    let mut rounds = 0..MAX_ROUNDS;
    loop {
        let mut transaction = Transaction::new();
        for port in ports {
            transaction.add(port.set(), &[port.element()], Existing::AcceptSame);
        }
        for pod in pods(ports) {
            let set = Family::of(pod).hairpin;
            transaction.add(set, &[hairpin(pod)], Existing::AcceptSame);
        }
        let Err(error) = transaction.commit(socket) else {
            return Ok(());
        };
        if !error.is(Errno::EXIST) && !error.is(Errno::BUSY) {
            return Err(error.into());
        }
        if let Some((port, holder)) = first_taken(socket, ports)? {
            return Err(HostPortError::Taken { port, holder });
        }
        // Who had it has just given it back.
        if rounds.next().is_none() {
            return Err(error.into());
        }
    }
}

/// Whether they could all be published, if nobody else had any of them.
fn check(ports: &[HostPort]) -> Result<(), HostPortError> {
    let mut holders = BTreeMap::new();
    for &port in ports {
        if !port.has_one_family() {
            return Err(HostPortError::MixedFamilies { port });
        }
        let target = SocketAddr::new(port.pod, port.pod_port);
        let key = (port.pod.is_ipv4(), port.key());
        let holder = *holders.entry(key).or_insert(target);
        if holder != target {
            return Err(HostPortError::Taken { port, holder });
        }
    }
    Ok(())
}

fn first_taken(
    socket: &Socket,
    ports: &[HostPort],
) -> Result<Option<(HostPort, SocketAddr)>, NetError> {
    for port in ports {
        let found = nft::element(socket, port.set(), &port.key())?;
        if let Some(found) = found
            && found.value != Some(port.value())
            && let Some(holder) = target(&found)
        {
            return Ok(Some((*port, holder)));
        }
    }
    Ok(None)
}

/// Their pods, each once.
fn pods(ports: &[HostPort]) -> Vec<IpAddr> {
    let mut pods: Vec<IpAddr> = ports.iter().map(|port| port.pod).collect();
    pods.sort_unstable();
    pods.dedup();
    pods
}

/// Takes back those that lead where `ports` says, and leaves those that lead elsewhere by now.
/// That there are none is fine, and so is that there is no table.
///
/// The kernel frees deleted elements after an RCU grace period, and closing any netfilter socket
/// waits for that, 10 to 20 ms: what takes a while as well should be done in between.
pub fn remove(socket: &Socket, ports: &[HostPort]) -> Result<(), NetError> {
    match nft::retry_outdated(|| try_remove(socket, ports)) {
        Err(error) if error.is(Errno::NOENT) => Ok(()),
        outcome => outcome,
    }
}

/// Values are compared, and then deleted by their keys: the generation makes sure that they are
/// still the same.
fn try_remove(socket: &Socket, ports: &[HostPort]) -> Result<(), NetError> {
    let mut transaction = Transaction::at(nft::generation(socket)?);
    let (ipv4, ipv6): (Vec<HostPort>, _) = ports
        .iter()
        .map(|port| port.normal())
        .partition(|port| port.pod.is_ipv4());
    for (family, ports) in [(&IPV4, ipv4), (&IPV6, ipv6)] {
        if ports.is_empty() {
            continue;
        }
        let removal = plan_removal(&ports, &family.published(socket)?);
        for port in &removal.ports {
            transaction.delete(port.set(), &[port.element()]);
        }
        for pod in removal.pods {
            let hairpin = hairpin(pod);
            if nft::element(socket, family.hairpin, &hairpin.key)?.is_some() {
                transaction.delete(family.hairpin, &[hairpin]);
            }
        }
    }
    transaction.commit(socket)
}

#[derive(Debug, PartialEq, Eq)]
struct Removal {
    ports: Vec<HostPort>,
    /// Those that have no hostPort any more.
    pods: Vec<IpAddr>,
}

/// What of `published` goes, if `ports` are to go.
fn plan_removal(ports: &[HostPort], published: &[HostPort]) -> Removal {
    let (gone, kept): (Vec<HostPort>, Vec<HostPort>) =
        published.iter().partition(|port| ports.contains(port));
    let mut pods = pods(ports);
    pods.retain(|pod| kept.iter().all(|port| port.pod != *pod));
    Removal { ports: gone, pods }
}

/// All that are published, in order.
pub fn list(socket: &Socket) -> Result<Vec<HostPort>, HostPortError> {
    let mut ports = IPV4.published(socket)?;
    ports.extend(IPV6.published(socket)?);
    ports.sort_unstable();
    Ok(ports)
}

/// The pods that may reach themselves by a hostPort, in order.
pub fn hairpins(socket: &Socket) -> Result<Vec<IpAddr>, HostPortError> {
    let mut pods = Vec::new();
    for family in [&IPV4, &IPV6] {
        let elements = nft::elements(socket, family.hairpin)?;
        // The pod's address, twice.
        let halves = elements
            .iter()
            .map(|element| element.key.split_at(element.key.len() / 2));
        pods.extend(halves.filter_map(|(pod, _)| ip_of(pod)));
    }
    pods.sort_unstable();
    Ok(pods)
}

/// Deletes the UDP flows to these hostPorts; returns how many there were.
///
/// A flow keeps the destination of its first packet: a UDP client that never falls silent would go on
/// to a pod that is gone, or miss a new one. A hostPort of every address is looked for on the `local`
/// ones: all addresses that the node may be reached by.
pub fn delete_udp_flows(
    socket: &Socket,
    ports: &[HostPort],
    local: &[IpAddr],
) -> Result<usize, NetError> {
    conntrack::delete_udp(socket, &udp_destinations(ports, local))
}

fn udp_destinations(ports: &[HostPort], local: &[IpAddr]) -> BTreeSet<SocketAddr> {
    let mut found = BTreeSet::new();
    for port in ports.iter().filter(|port| port.protocol == Protocol::Udp) {
        let host = port.normal().host;
        let hosts = host.as_ref().map_or(local, std::slice::from_ref);
        let of_family = hosts
            .iter()
            .filter(|host| host.is_ipv4() == port.pod.is_ipv4());
        found.extend(of_family.map(|host| SocketAddr::new(*host, port.port)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(host: Option<&str>, port: u16, pod: &str) -> HostPort {
        HostPort {
            host: host.map(|host| host.parse().unwrap()),
            protocol: Protocol::Tcp,
            port,
            pod: pod.parse().unwrap(),
            pod_port: 80,
        }
    }

    #[test]
    fn keys_and_values_are_as_nftables_has_them() {
        let any = port(None, 8080, "10.0.0.5");
        assert_eq!(any.set().name, "by_port4");
        assert_eq!(any.key(), [6, 0, 0, 0, 0x1f, 0x90, 0, 0]);
        assert_eq!(any.value(), [10, 0, 0, 5, 0, 80, 0, 0]);
        let one = port(Some("192.0.2.1"), 8080, "10.0.0.5");
        assert_eq!(one.set().name, "by_address4");
        assert_eq!(one.key(), [192, 0, 2, 1, 6, 0, 0, 0, 0x1f, 0x90, 0, 0]);
        assert_eq!(port(None, 1, "fd00::1").set().name, "by_port6");
        assert_eq!(port(Some("::1"), 1, "fd00::1").set().name, "by_address6");
    }

    #[test]
    fn elements_are_read_back() {
        for one in [
            port(None, 8080, "10.0.0.5"),
            port(Some("192.0.2.1"), 65535, "10.0.0.5"),
            port(None, 1, "fd00::1"),
            port(Some("2001:db8::1"), 443, "fd00::1"),
        ] {
            for protocol in Protocol::ALL {
                let one = HostPort { protocol, ..one };
                assert_eq!(HostPort::read(&one.element()), Some(one));
            }
        }
    }

    #[test]
    fn foreign_elements_are_passed_over() {
        for (key, value) in [
            (vec![], vec![]),
            (vec![6], vec![1, 2, 3]),
            (
                vec![1, 0, 0, 0, 0, 80, 0, 0],
                vec![10, 0, 0, 1, 0, 80, 0, 0],
            ),
            (vec![6, 0, 0, 0, 0, 80, 0, 0], vec![10, 0, 0, 0, 80, 0, 0]),
        ] {
            assert_eq!(HostPort::read(&Element::entry(key, value)), None);
        }
        assert_eq!(HostPort::read(&Element::member(vec![6; 8])), None);
    }

    #[test]
    fn every_address_can_be_said_in_two_ways() {
        for (all, pod) in [("0.0.0.0", "10.0.0.5"), ("::", "fd00::1")] {
            let (zero, none) = (port(Some(all), 80, pod), port(None, 80, pod));
            assert_eq!(zero.element(), none.element());
            assert_eq!(zero.normal(), none);
        }
    }

    #[test]
    fn ports_that_contradict_each_other_are_refused() {
        let (ours, theirs) = (port(None, 80, "10.0.0.5"), port(None, 80, "10.0.0.6"));
        assert!(check(&[ours, ours]).is_ok());
        assert!(check(&[ours, port(Some("192.0.2.1"), 80, "10.0.0.6")]).is_ok());
        assert!(check(&[ours, port(None, 80, "fd00::1")]).is_ok());
        let error = check(&[ours, theirs]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "TCP port 80 cannot lead to 10.0.0.6: it leads to 10.0.0.5:80"
        );
        let error = check(&[port(Some("192.0.2.1"), 80, "fd00::1")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "TCP port 80 of 192.0.2.1 cannot lead to fd00::1: one is IPv4, the other IPv6"
        );
    }

    #[test]
    fn only_ours_goes_and_a_pod_goes_with_its_last_port() {
        let (a, b) = (port(None, 80, "10.0.0.5"), port(None, 81, "10.0.0.5"));
        let taken = port(None, 82, "10.0.0.6");
        let ours = port(None, 82, "10.0.0.5");
        let pod = a.pod;
        let published = [a, b, taken];

        let first = plan_removal(&[a], &published);
        assert_eq!((first.ports, first.pods), (vec![a], vec![]));
        let both = plan_removal(&[a, b, ours], &published);
        assert_eq!((both.ports, both.pods), (vec![a, b], vec![pod]));
        let late = plan_removal(&[ours], &[taken]);
        assert_eq!((late.ports, late.pods), (vec![], vec![pod]));
    }

    #[test]
    fn only_udp_of_the_pods_family_is_looked_for() {
        let udp = |host, number, pod| HostPort {
            protocol: Protocol::Udp,
            ..port(host, number, pod)
        };
        let ports = [
            udp(None, 53, "10.0.0.5"),
            udp(Some("0.0.0.0"), 54, "10.0.0.5"),
            udp(Some("192.0.2.9"), 55, "10.0.0.5"),
            port(None, 56, "10.0.0.5"),
            udp(None, 57, "fd00::5"),
            udp(Some("192.0.2.9"), 58, "fd00::5"),
        ];
        let local = ["192.0.2.1", "192.0.2.2", "2001:db8::1"].map(|text| text.parse().unwrap());
        let wanted = [
            "192.0.2.1:53",
            "192.0.2.2:53",
            "192.0.2.1:54",
            "192.0.2.2:54",
            "192.0.2.9:55",
            "[2001:db8::1]:57",
        ];
        let wanted: BTreeSet<SocketAddr> = wanted.iter().map(|to| to.parse().unwrap()).collect();
        assert_eq!(udp_destinations(&ports, &local), wanted);
        assert_eq!(udp_destinations(&[], &local), BTreeSet::new());
    }
}
