//! Ports of the host that lead to a pod: `runtimeConfig.portMappings`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use cni::{Error, Keys};
use ruleset::host_ports::{HostPort, Protocol};
use serde_json::{Map, Value};

/// The ports that a pod asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    mappings: Vec<PortMapping>,
    /// Whether those of any address are to be reached by 127.0.0.1 too.
    with_localhost: bool,
}

/// One entry of `portMappings`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PortMapping {
    host: Host,
    protocol: Protocol,
    port: u16,
    pod_port: u16,
}

/// The addresses of the host that a port is open on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Host {
    Any,
    AnyIpv4,
    AnyIpv6,
    One(IpAddr),
}

impl Ports {
    /// Reads the ports; whatever is wrong with one of them is an error.
    pub fn parse(keys: Keys<'_>) -> Result<Self, Error> {
        let runtime_path = keys.name("runtimeConfig");
        let runtime = keys.object("runtimeConfig")?;
        let list = match runtime {
            Some(map) => Keys::new(map, &runtime_path).list("portMappings")?,
            None => None,
        };
        let mut mappings: Vec<PortMapping> = Vec::new();
        for (index, entry) in list.into_iter().flatten().enumerate() {
            let path = format!("{runtime_path}.portMappings[{index}]");
            let Value::Object(entry) = entry else {
                return Err(Error::config(format!("{path} must be an object")));
            };
            let Some(mapping) = PortMapping::parse(Keys::new(entry, &path))? else {
                continue;
            };
            if let Some(other) = mappings.iter().find(|other| other.collides(&mapping)) {
                return Err(Error::config(format!(
                    "{path} asks for {mapping}, and an entry before it for {other}: \
                     a port of the host leads to one place"
                )));
            }
            mappings.push(mapping);
        }
        Ok(Self {
            mappings,
            with_localhost: keys.flag("hostport_localhost")?.unwrap_or(false),
        })
    }

    /// The ports that can be read, for undoing what an ADD of this configuration may have made.
    pub fn for_cleaning(conf: &Map<String, Value>) -> Self {
        let list = conf
            .get("runtimeConfig")
            .and_then(|runtime| runtime.get("portMappings"))
            .and_then(Value::as_array);
        let readable = |entry: &Value| {
            let keys = Keys::new(entry.as_object()?, "portMappings");
            // An entry that makes no sense has made no port: there is nothing to undo.
            PortMapping::parse(keys).ok().flatten()
        };
        Self {
            mappings: list.into_iter().flatten().filter_map(readable).collect(),
            with_localhost: conf.get("hostport_localhost") == Some(&Value::Bool(true)),
        }
    }

    /// The ports of a pod with these addresses.
    ///
    /// A port leads to one address of each family: the first, as with the reference plugin.
    pub fn on(&self, pod_addresses: &[IpAddr]) -> Vec<HostPort> {
        let first = |of_family: fn(&IpAddr) -> bool| {
            let mut addresses = pod_addresses.iter().copied();
            addresses.find(of_family)
        };
        let pods = [first(IpAddr::is_ipv4), first(IpAddr::is_ipv6)];
        let mut ports = Vec::new();
        for mapping in &self.mappings {
            let pods = pods.into_iter().flatten();
            for pod in pods.filter(|pod| mapping.host.leads_to(*pod)) {
                ports.push(mapping.leading_to(pod, mapping.host.address()));
                if pod.is_ipv4() && self.is_added_on_localhost(mapping) {
                    ports.push(mapping.leading_to(pod, Some(Ipv4Addr::LOCALHOST.into())));
                }
            }
        }
        ports
    }

    /// Ports that a pod with these addresses can't have, for the log.
    pub fn unserved(&self, pod_addresses: &[IpAddr]) -> Vec<String> {
        let is_served = |mapping: &&PortMapping| {
            let mut pods = pod_addresses.iter();
            pods.any(|pod| mapping.host.leads_to(*pod))
        };
        let unserved = self.mappings.iter().filter(|mapping| !is_served(mapping));
        unserved
            .map(|mapping| {
                format!("host port {mapping} leads nowhere: the pod has no address of that family")
            })
            .collect()
    }

    /// Whether a port is on an address of 127.0.0.0/8: the pod's link then needs `route_localnet`.
    pub fn is_on_localhost(&self) -> bool {
        self.mappings.iter().any(|mapping| match mapping.host {
            Host::One(IpAddr::V4(address)) => address.is_loopback(),
            _ => self.is_added_on_localhost(mapping),
        })
    }

    /// Whether a port of any address gets one on 127.0.0.1 besides, where it has none by itself.
    fn is_added_on_localhost(&self, mapping: &PortMapping) -> bool {
        let on_localhost = PortMapping {
            host: Host::One(Ipv4Addr::LOCALHOST.into()),
            ..mapping.clone()
        };
        self.with_localhost
            && matches!(mapping.host, Host::Any | Host::AnyIpv4)
            && !self
                .mappings
                .iter()
                .any(|other| other.collides(&on_localhost))
    }
}

impl PortMapping {
    /// `None` for an entry that doesn't ask for a port of the host.
    fn parse(keys: Keys<'_>) -> Result<Option<Self>, Error> {
        let port = |key| match keys.value(key) {
            None => Ok(0),
            Some(value) => value
                .as_u64()
                .and_then(|port| u16::try_from(port).ok())
                .ok_or_else(|| keys.wrong(key, "a port, from 1 to 65535")),
        };
        let host_port = port("hostPort")?;
        if host_port == 0 {
            return Ok(None);
        }
        let pod_port = port("containerPort")?;
        if pod_port == 0 {
            return Err(Error::config(format!(
                "{} is missing or 0: to which port of the pod shall {} {host_port} lead?",
                keys.name("containerPort"),
                keys.name("hostPort")
            )));
        }
        let protocol = keys.text("protocol")?.unwrap_or_default();
        let protocol = match protocol.to_ascii_lowercase().as_str() {
            "" | "tcp" => Protocol::Tcp,
            "udp" => Protocol::Udp,
            "sctp" => Protocol::Sctp,
            _ => return Err(keys.wrong("protocol", "\"tcp\", \"udp\" or \"sctp\"")),
        };
        Ok(Some(Self {
            host: Host::parse(keys)?,
            protocol,
            port: host_port,
            pod_port,
        }))
    }

    /// Whether both would be the same key of the kernel's map, whatever addresses the pod has.
    fn collides(&self, other: &Self) -> bool {
        let is_same_host = match (self.host, other.host) {
            (Host::One(a), Host::One(b)) => a == b,
            (Host::One(_), _)
            | (_, Host::One(_))
            | (Host::AnyIpv4, Host::AnyIpv6)
            | (Host::AnyIpv6, Host::AnyIpv4) => false,
            _ => true,
        };
        is_same_host && (self.protocol, self.port) == (other.protocol, other.port)
    }

    fn leading_to(&self, pod: IpAddr, host: Option<IpAddr>) -> HostPort {
        HostPort {
            host,
            protocol: self.protocol,
            port: self.port,
            pod,
            pod_port: self.pod_port,
        }
    }
}

impl fmt::Display for PortMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = match self.protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Sctp => "sctp",
        };
        write!(f, "{} {protocol}", self.port)?;
        match self.host {
            Host::Any => Ok(()),
            Host::AnyIpv4 => f.write_str(" on 0.0.0.0"),
            Host::AnyIpv6 => f.write_str(" on ::"),
            Host::One(address) => write!(f, " on {address}"),
        }
    }
}

impl Host {
    fn parse(keys: Keys<'_>) -> Result<Self, Error> {
        let text = keys.text("hostIP")?.unwrap_or_default();
        if text.is_empty() {
            return Ok(Self::Any);
        }
        let address: IpAddr = text
            .parse()
            .map_err(|_| keys.wrong("hostIP", "an IP address, or empty for all of the host's"))?;
        match address.to_canonical() {
            address if address.is_unspecified() && address.is_ipv4() => Ok(Self::AnyIpv4),
            address if address.is_unspecified() => Ok(Self::AnyIpv6),
            // The kernel has `route_localnet` for IPv4 only.
            address if address.is_loopback() && address.is_ipv6() => {
                Err(keys.wrong("hostIP", "127.0.0.1 for a port of the host's own, not IPv6"))
            }
            address if address.is_multicast() => {
                Err(keys.wrong("hostIP", "an address of the host"))
            }
            address => Ok(Self::One(address)),
        }
    }

    /// Whether what arrives there may go on to this pod: it stays within its family.
    fn leads_to(self, pod: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::AnyIpv4 => pod.is_ipv4(),
            Self::AnyIpv6 => pod.is_ipv6(),
            Self::One(host) => host.is_ipv4() == pod.is_ipv4(),
        }
    }

    /// The one address, if it is one.
    fn address(self) -> Option<IpAddr> {
        match self {
            Self::One(host) => Some(host),
            Self::Any | Self::AnyIpv4 | Self::AnyIpv6 => None,
        }
    }
}

#[cfg(test)]
mod tests;
