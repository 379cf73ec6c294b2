//! Host ports of a pod: `runtimeConfig.portMappings`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use cni::{Error, Keys};
use ruleset::host_ports::{HostPort, Protocol};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The host ports of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortMappings {
    mappings: Vec<PortMapping>,
    /// `hostport_localhost`: open ports of all addresses on 127.0.0.1 too.
    #[serde(default)]
    on_localhost: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PortMapping {
    host: HostAddress,
    #[serde(with = "ProtocolName")]
    protocol: Protocol,
    port: u16,
    pod_port: u16,
}

/// `hostIP`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum HostAddress {
    Any,
    AnyIpv4,
    AnyIpv6,
    One(IpAddr),
}

impl PortMappings {
    /// Parses the port mappings and rejects invalid ones.
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
                     a host port can have one destination"
                )));
            }
            mappings.push(mapping);
        }
        Ok(Self {
            mappings,
            on_localhost: keys.flag("hostport_localhost")?.unwrap_or(false),
        })
    }

    /// Parses the valid port mappings and ignores the others, for clean-up.
    pub fn parse_lenient(conf: &Map<String, Value>) -> Self {
        let list = conf
            .get("runtimeConfig")
            .and_then(|runtime| runtime.get("portMappings"))
            .and_then(Value::as_array);
        let readable = |entry: &Value| {
            let keys = Keys::new(entry.as_object()?, "portMappings");
            PortMapping::parse(keys).ok().flatten()
        };
        Self {
            mappings: list.into_iter().flatten().filter_map(readable).collect(),
            on_localhost: conf.get("hostport_localhost") == Some(&Value::Bool(true)),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.mappings.is_empty()
    }

    /// The host ports of a pod with these addresses.
    ///
    /// A port leads to the first address of each family, as in the reference plugin `portmap`.
    pub fn host_ports(&self, pod_addresses: &[IpAddr]) -> Vec<HostPort> {
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

    /// Warnings for ports whose IP family the pod doesn't have.
    pub fn unserved(&self, pod_addresses: &[IpAddr]) -> Vec<String> {
        let is_served = |mapping: &&PortMapping| {
            let mut pods = pod_addresses.iter();
            pods.any(|pod| mapping.host.leads_to(*pod))
        };
        let unserved = self.mappings.iter().filter(|mapping| !is_served(mapping));
        unserved
            .map(|mapping| {
                format!("host port {mapping} is not opened: the pod has no address of that family")
            })
            .collect()
    }

    /// Whether a port is open on 127.0.0.0/8. The pod's link then needs `route_localnet`.
    pub fn needs_route_localnet(&self) -> bool {
        self.mappings.iter().any(|mapping| match mapping.host {
            HostAddress::One(IpAddr::V4(address)) => address.is_loopback(),
            _ => self.is_added_on_localhost(mapping),
        })
    }

    /// Whether a port of all addresses is also opened on 127.0.0.1, unless another mapping uses that.
    fn is_added_on_localhost(&self, mapping: &PortMapping) -> bool {
        let on_localhost = PortMapping {
            host: HostAddress::One(Ipv4Addr::LOCALHOST.into()),
            ..mapping.clone()
        };
        self.on_localhost
            && matches!(mapping.host, HostAddress::Any | HostAddress::AnyIpv4)
            && !self
                .mappings
                .iter()
                .any(|other| other.collides(&on_localhost))
    }
}

impl PortMapping {
    /// `None` for an entry without a host port.
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
                "{} is missing or 0: {} {host_port} needs the port of the pod",
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
            host: HostAddress::parse(keys)?,
            protocol,
            port: host_port,
            pod_port,
        }))
    }

    /// Whether both would be the same key of the nft map.
    fn collides(&self, other: &Self) -> bool {
        let is_same_host = match (self.host, other.host) {
            (HostAddress::One(a), HostAddress::One(b)) => a == b,
            (HostAddress::One(_), _)
            | (_, HostAddress::One(_))
            | (HostAddress::AnyIpv4, HostAddress::AnyIpv6)
            | (HostAddress::AnyIpv6, HostAddress::AnyIpv4) => false,
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

#[derive(Serialize, Deserialize)]
#[serde(remote = "Protocol", rename_all = "lowercase")]
enum ProtocolName {
    Tcp,
    Udp,
    Sctp,
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
            HostAddress::Any => Ok(()),
            HostAddress::AnyIpv4 => f.write_str(" on 0.0.0.0"),
            HostAddress::AnyIpv6 => f.write_str(" on ::"),
            HostAddress::One(address) => write!(f, " on {address}"),
        }
    }
}

impl HostAddress {
    fn parse(keys: Keys<'_>) -> Result<Self, Error> {
        let text = keys.text("hostIP")?.unwrap_or_default();
        if text.is_empty() {
            return Ok(Self::Any);
        }
        let address: IpAddr = text.parse().map_err(|_| {
            keys.wrong(
                "hostIP",
                "an IP address, or empty for all addresses of the host",
            )
        })?;
        match address.to_canonical() {
            address if address.is_unspecified() && address.is_ipv4() => Ok(Self::AnyIpv4),
            address if address.is_unspecified() => Ok(Self::AnyIpv6),
            // The kernel has `route_localnet` for IPv4 only.
            address if address.is_loopback() && address.is_ipv6() => {
                Err(keys.wrong("hostIP", "127.0.0.1 for a port on localhost, not IPv6"))
            }
            address if address.is_multicast() => {
                Err(keys.wrong("hostIP", "an address of the host"))
            }
            address => Ok(Self::One(address)),
        }
    }

    /// Packets are not translated between IP families.
    fn leads_to(self, pod: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::AnyIpv4 => pod.is_ipv4(),
            Self::AnyIpv6 => pod.is_ipv6(),
            Self::One(host) => host.is_ipv4() == pod.is_ipv4(),
        }
    }

    fn address(self) -> Option<IpAddr> {
        match self {
            Self::One(host) => Some(host),
            Self::Any | Self::AnyIpv4 | Self::AnyIpv6 => None,
        }
    }
}

#[cfg(test)]
mod tests;
