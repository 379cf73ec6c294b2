//! hostPorts: packets to a port of the node are forwarded to a pod.
//!
//! They are elements of maps in the table `inet headcni-ports`. A hostPort with a hostIP is in
//! `by_address`, which takes precedence, any other in `by_port`. The pod is in `hairpin` as well, so
//! that it can reach itself by its hostPort.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use net::nft::{self, Element, Existing, Set, Transaction, concatenate, ip_of, octets};
use net::{Errno, NetError, Socket, conntrack};

use crate::PORTS_TABLE;

/// Attempts at a port that was taken, and free when its holder was queried.
const MAX_ATTEMPTS: usize = 100;

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

    /// IP protocol number.
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

/// A port of the node that is forwarded to a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort {
    /// The hostIP. `None`, `0.0.0.0` and `::` stand for every address of the pod's family except
    /// loopback.
    pub host: Option<IpAddr>,
    /// Transport protocol.
    pub protocol: Protocol,
    /// Port of the node.
    pub port: u16,
    /// Address of the pod.
    pub pod: IpAddr,
    /// Port of the pod.
    pub pod_port: u16,
}

impl HostPort {
    /// The same with `None` for every address.
    fn normalized(self) -> Self {
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
        match self.normalized().host {
            Some(_) => family.by_address,
            None => family.by_port,
        }
    }

    fn key(&self) -> Vec<u8> {
        let (protocol, port) = ([self.protocol.number()], self.port.to_be_bytes());
        match self.normalized().host {
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

/// The pod address and port of a map element.
fn target(element: &Element) -> Option<SocketAddr> {
    let value = element.value.as_deref()?;
    let (address, port) = value.split_at(value.len().checked_sub(4)?);
    let port = u16::from_be_bytes([port[0], port[1]]);
    Some(SocketAddr::new(ip_of(address)?, port))
}

/// Why changing hostPorts failed.
#[derive(Debug, thiserror::Error)]
pub enum HostPortError {
    /// Another pod has the port.
    #[error("cannot forward {port} to {}: it is forwarded to {holder}", port.pod)]
    Taken {
        /// The requested hostPort.
        port: HostPort,
        /// Pod address and port that it is forwarded to.
        holder: SocketAddr,
    },
    /// hostIP and pod address are of different families.
    #[error("cannot forward {port} to {}: one is IPv4, the other IPv6", port.pod)]
    MixedFamilies {
        /// The requested hostPort.
        port: HostPort,
    },
    /// The table is missing: [`install`](crate::install) it.
    #[error("there is no nftables table inet {PORTS_TABLE}")]
    NoTable,
    /// The kernel rejected the change.
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

/// The sets and maps of one address family.
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

    fn host_ports(&self, socket: &Socket) -> Result<Vec<HostPort>, NetError> {
        let mut elements = nft::elements(socket, self.by_address)?;
        elements.extend(nft::elements(socket, self.by_port)?);
        Ok(elements.iter().filter_map(HostPort::read).collect())
    }
}

/// The element with which a pod can reach itself.
fn hairpin(pod: IpAddr) -> Element {
    Element::member(concatenate(&[&octets(pod), &octets(pod)]))
}

/// Adds all hostPorts or none. One that exists already is fine.
pub fn add(socket: &Socket, ports: &[HostPort]) -> Result<(), HostPortError> {
    check(ports)?;
    let mut attempts = 0..MAX_ATTEMPTS;
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
        // Its holder has just released it.
        if attempts.next().is_none() {
            return Err(error.into());
        }
    }
}

/// Whether the hostPorts are consistent in themselves.
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

/// Their pods, without duplicates.
fn pods(ports: &[HostPort]) -> Vec<IpAddr> {
    let mut pods: Vec<IpAddr> = ports.iter().map(|port| port.pod).collect();
    pods.sort_unstable();
    pods.dedup();
    pods
}

/// Removes these hostPorts, unless they are forwarded to another pod meanwhile. Missing ones and a
/// missing table are fine.
///
/// The kernel frees deleted elements after an RCU grace period, and closing a netfilter socket waits
/// for it, 10 to 20 ms: do other slow work before you close it.
pub fn remove(socket: &Socket, ports: &[HostPort]) -> Result<(), NetError> {
    match nft::retry_outdated(|| try_remove(socket, ports)) {
        Err(error) if error.is(Errno::NOENT) => Ok(()),
        outcome => outcome,
    }
}

/// The kernel deletes elements by key; the generation ensures that the compared values still hold.
fn try_remove(socket: &Socket, ports: &[HostPort]) -> Result<(), NetError> {
    let mut transaction = Transaction::at(nft::generation(socket)?);
    let (ipv4, ipv6): (Vec<HostPort>, _) = ports
        .iter()
        .map(|port| port.normalized())
        .partition(|port| port.pod.is_ipv4());
    for (family, ports) in [(&IPV4, ipv4), (&IPV6, ipv6)] {
        if ports.is_empty() {
            continue;
        }
        let removal = plan_removal(&ports, &family.host_ports(socket)?);
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
    /// Pods without another hostPort.
    pods: Vec<IpAddr>,
}

/// Plans the removal of `ports` from the present ones.
fn plan_removal(ports: &[HostPort], present: &[HostPort]) -> Removal {
    let (removed, remaining): (Vec<HostPort>, Vec<HostPort>) =
        present.iter().partition(|port| ports.contains(port));
    let mut pods = pods(ports);
    pods.retain(|pod| remaining.iter().all(|port| port.pod != *pod));
    Removal {
        ports: removed,
        pods,
    }
}

/// All hostPorts, sorted.
pub fn list(socket: &Socket) -> Result<Vec<HostPort>, HostPortError> {
    let mut ports = IPV4.host_ports(socket)?;
    ports.extend(IPV6.host_ports(socket)?);
    ports.sort_unstable();
    Ok(ports)
}

/// The pods that may reach themselves by a hostPort, sorted.
pub fn hairpins(socket: &Socket) -> Result<Vec<IpAddr>, HostPortError> {
    let mut pods = Vec::new();
    for family in [&IPV4, &IPV6] {
        let elements = nft::elements(socket, family.hairpin)?;
        // The key is the address of the pod, twice.
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
/// conntrack applies DNAT to the first packet of a flow only: a UDP client that never pauses would
/// continue to reach a deleted pod, or miss a new one. `local` are the addresses of the node, for
/// hostPorts without a hostIP.
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
        let host = port.normalized().host;
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
    fn keys_and_values_have_the_layout_of_nftables() {
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
    fn elements_round_trip() {
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
    fn foreign_elements_are_ignored() {
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
    fn an_unspecified_host_ip_means_every_address() {
        for (all, pod) in [("0.0.0.0", "10.0.0.5"), ("::", "fd00::1")] {
            let (zero, none) = (port(Some(all), 80, pod), port(None, 80, pod));
            assert_eq!(zero.element(), none.element());
            assert_eq!(zero.normalized(), none);
        }
    }

    #[test]
    fn conflicting_host_ports_are_rejected() {
        let (ours, theirs) = (port(None, 80, "10.0.0.5"), port(None, 80, "10.0.0.6"));
        assert!(check(&[ours, ours]).is_ok());
        assert!(check(&[ours, port(Some("192.0.2.1"), 80, "10.0.0.6")]).is_ok());
        assert!(check(&[ours, port(None, 80, "fd00::1")]).is_ok());
        let error = check(&[ours, theirs]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot forward TCP port 80 to 10.0.0.6: it is forwarded to 10.0.0.5:80"
        );
        let error = check(&[port(Some("192.0.2.1"), 80, "fd00::1")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot forward TCP port 80 of 192.0.2.1 to fd00::1: one is IPv4, the other IPv6"
        );
    }

    #[test]
    fn only_own_ports_are_removed_and_the_hairpin_with_the_last() {
        let (a, b) = (port(None, 80, "10.0.0.5"), port(None, 81, "10.0.0.5"));
        let taken = port(None, 82, "10.0.0.6");
        let ours = port(None, 82, "10.0.0.5");
        let pod = a.pod;
        let present = [a, b, taken];

        let first = plan_removal(&[a], &present);
        assert_eq!((first.ports, first.pods), (vec![a], vec![]));
        let both = plan_removal(&[a, b, ours], &present);
        assert_eq!((both.ports, both.pods), (vec![a, b], vec![pod]));
        let late = plan_removal(&[ours], &[taken]);
        assert_eq!((late.ports, late.pods), (vec![], vec![pod]));
    }

    #[test]
    fn udp_destinations_have_the_family_of_the_pod() {
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
