//! `subnet.env`: which subnets, MTU and masquerading this node's pods get.
//!
//! Lines of `KEY=VALUE`; lists are separated by commas. An environment variable of the same name
//! wins over the line. A file that was cut off is refused where that shows: every key is required,
//! and every subnet must lie in its network.

mod render;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use ipnet::IpNet;

const MTU: &str = "HEADCNI_MTU";
const IPMASQ: &str = "HEADCNI_IPMASQ";
/// Network and subnet keys of each family.
const FAMILIES: [(&str, &str); 2] = [
    ("HEADCNI_NETWORK", "HEADCNI_SUBNET"),
    ("HEADCNI_IPV6_NETWORK", "HEADCNI_IPV6_SUBNET"),
];
/// Every key of the file, and every variable that wins over it.
pub const KEYS: [&str; 6] = [
    "HEADCNI_NETWORK",
    "HEADCNI_SUBNET",
    "HEADCNI_IPV6_NETWORK",
    "HEADCNI_IPV6_SUBNET",
    MTU,
    IPMASQ,
];

/// What a node's pods get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubnetEnv {
    /// IPv4, IPv6 or both, in this order.
    pub families: Vec<Family>,
    /// The largest packet that the mesh carries.
    pub mtu_bytes: u32,
    /// Who masquerades what leaves the cluster: the node, or else the delegate.
    pub node_masquerades: bool,
}

/// The addresses of one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    /// The whole cluster's networks.
    pub networks: Vec<IpNet>,
    /// This node's part of them.
    pub subnets: Vec<NodeSubnet>,
}

/// A subnet of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeSubnet {
    /// The subnet.
    pub net: IpNet,
    /// Its gateway, if the file names one by host bits (`10.244.1.1/24`).
    pub gateway: Option<IpAddr>,
}

/// What is known though the subnets aren't.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// As [`SubnetEnv::mtu_bytes`].
    pub mtu_bytes: Option<u32>,
    /// As [`SubnetEnv::node_masquerades`].
    pub node_masquerades: Option<bool>,
}

/// Why a node's subnets are not known.
#[derive(Debug, thiserror::Error)]
pub enum SubnetEnvError {
    /// There is no file, and the environment does not say it either.
    #[error(
        "{variable} is not known: the subnet file {} does not exist (headcni-daemon writes it) \
         and the environment has no {variable}", file.display()
    )]
    Absent {
        /// The file that should be there.
        file: PathBuf,
        /// The first variable that is needed.
        variable: &'static str,
        /// What the environment says all the same.
        known: Known,
    },
    /// The file can't be read.
    #[error("read subnet file {}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A line is not `KEY=VALUE`, or contradicts another.
    #[error("subnet file {} line {line}: {trouble}", file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        trouble: String,
    },
    /// The file is there, but lacks a key.
    #[error("subnet file {} has no {variable}: it is incomplete, or was cut off", file.display())]
    Incomplete {
        /// The file.
        file: PathBuf,
        /// The key.
        variable: &'static str,
    },
    /// A value makes no sense.
    #[error("{variable}={value} ({origin}): {trouble}")]
    Value {
        /// The key.
        variable: &'static str,
        /// Its value.
        value: String,
        /// Where it is from.
        origin: String,
        /// What is wrong.
        trouble: String,
    },
}

impl SubnetEnv {
    /// Reads `file`, with the variables of `env` ahead of it.
    ///
    /// The file isn't touched if the environment says everything.
    pub fn load(file: &Path, env: impl Fn(&str) -> Option<String>) -> Result<Self, SubnetEnvError> {
        let from_env = KEYS.into_iter().filter_map(|key| {
            Some((
                key,
                Setting {
                    value: env(key)?,
                    origin: "environment".to_owned(),
                },
            ))
        });
        let mut settings = Settings {
            file,
            file_exists: true,
            values: from_env.collect(),
        };
        if settings.first_missing().is_some() {
            settings.add_file()?;
        }
        settings.resolve()
    }

    /// Reads a text as if it stood in `file`.
    pub fn parse(text: &str, file: &Path) -> Result<Self, SubnetEnvError> {
        let mut settings = Settings {
            file,
            file_exists: true,
            values: BTreeMap::new(),
        };
        settings.add_text(text)?;
        settings.resolve()
    }
}

struct Setting {
    value: String,
    origin: String,
}

/// Values as text, and where each is from.
struct Settings<'a> {
    file: &'a Path,
    file_exists: bool,
    values: BTreeMap<&'static str, Setting>,
}

impl Settings<'_> {
    fn has(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    fn first_missing(&self) -> Option<&'static str> {
        let [(network, subnet), (network6, subnet6)] = FAMILIES;
        let has_ipv6 = self.has(subnet6) || self.has(network6);
        let needs_ipv4 = !has_ipv6 || self.has(subnet) || self.has(network);
        [
            (subnet, needs_ipv4),
            (network, needs_ipv4),
            (subnet6, has_ipv6),
            (network6, has_ipv6),
        ]
        .into_iter()
        .chain([(MTU, true), (IPMASQ, true)])
        .find_map(|(key, is_needed)| (is_needed && !self.has(key)).then_some(key))
    }

    /// Adds the file's values where the environment has none.
    fn add_file(&mut self) -> Result<(), SubnetEnvError> {
        let text = match read_regular(self.file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.file_exists = false;
                return Ok(());
            }
            Err(source) => {
                return Err(SubnetEnvError::Unreadable {
                    file: self.file.to_owned(),
                    source,
                });
            }
        };
        self.add_text(&text)
    }

    fn add_text(&mut self, text: &str) -> Result<(), SubnetEnvError> {
        for (key, (line, value)) in parse_lines(self.file, text)? {
            let origin = format!("{} line {line}", self.file.display());
            self.values.entry(key).or_insert(Setting { value, origin });
        }
        Ok(())
    }

    fn resolve(&self) -> Result<SubnetEnv, SubnetEnvError> {
        if let Some(variable) = self.first_missing() {
            let file = self.file.to_owned();
            if self.file_exists {
                return Err(SubnetEnvError::Incomplete { file, variable });
            }
            let mtu = self.has(MTU).then(|| self.mtu(false)).transpose()?;
            let ipmasq = self.has(IPMASQ).then(|| self.ipmasq()).transpose()?;
            let known = Known {
                mtu_bytes: mtu,
                node_masquerades: ipmasq,
            };
            return Err(SubnetEnvError::Absent {
                file,
                variable,
                known,
            });
        }
        let families: Vec<Family> = FAMILIES
            .into_iter()
            .filter(|(_, subnet)| self.has(subnet))
            .map(|(network, subnet)| self.family(network, subnet))
            .collect::<Result<_, _>>()?;
        let has_ipv6 = families
            .iter()
            .flat_map(|f| &f.subnets)
            .any(|s| s.net.addr().is_ipv6());
        Ok(SubnetEnv {
            families,
            mtu_bytes: self.mtu(has_ipv6)?,
            node_masquerades: self.ipmasq()?,
        })
    }

    fn family(
        &self,
        network_key: &'static str,
        subnet_key: &'static str,
    ) -> Result<Family, SubnetEnvError> {
        let is_ipv6 = network_key == FAMILIES[1].0;
        let networks: Vec<IpNet> = self
            .nets(network_key, is_ipv6)?
            .iter()
            .map(IpNet::trunc)
            .collect();
        let mut subnets: Vec<NodeSubnet> = Vec::new();
        for net in self.nets(subnet_key, is_ipv6)? {
            let subnet = node_subnet(net).map_err(|trouble| self.wrong(subnet_key, trouble))?;
            if !networks.iter().any(|network| network.contains(&subnet.net)) {
                let trouble = format!("{net} is not inside {network_key}={}", list(&networks));
                return Err(self.wrong(subnet_key, trouble));
            }
            if let Some(other) = subnets
                .iter()
                .find(|other| overlap(&other.net, &subnet.net))
            {
                return Err(self.wrong(subnet_key, format!("{} and {net} overlap", other.net)));
            }
            subnets.push(subnet);
        }
        Ok(Family { networks, subnets })
    }

    fn nets(&self, key: &'static str, is_ipv6: bool) -> Result<Vec<IpNet>, SubnetEnvError> {
        let text = &self.values[key].value;
        text.split(',')
            .map(|item| {
                let item = item.trim();
                let net: IpNet = item.parse().map_err(|_| {
                    self.wrong(key, format!("{item:?} is not of the form IP/LENGTH"))
                })?;
                if net.addr().is_ipv6() != is_ipv6 {
                    return Err(self.wrong(key, format!("{item} is of the other IP family")));
                }
                Ok(net)
            })
            .collect()
    }

    fn mtu(&self, has_ipv6: bool) -> Result<u32, SubnetEnvError> {
        // RFC 791 and RFC 8200: what every link must carry.
        let least = if has_ipv6 { 1280 } else { 68 };
        match self.values[MTU].value.parse() {
            Ok(mtu) if (least..=65535).contains(&mtu) => Ok(mtu),
            _ => Err(self.wrong(MTU, format!("must be a number from {least} to 65535"))),
        }
    }

    fn ipmasq(&self) -> Result<bool, SubnetEnvError> {
        match self.values[IPMASQ].value.to_ascii_lowercase().as_str() {
            "true" | "1" => Ok(true),
            "false" | "0" => Ok(false),
            _ => Err(self.wrong(IPMASQ, "must be true or false".to_owned())),
        }
    }

    fn wrong(&self, variable: &'static str, trouble: String) -> SubnetEnvError {
        let setting = &self.values[variable];
        SubnetEnvError::Value {
            variable,
            value: setting.value.clone(),
            origin: setting.origin.clone(),
            trouble,
        }
    }
}

/// Reads a file, but waits for no pipe.
fn read_regular(path: &Path) -> io::Result<String> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a regular file",
        ));
    }
    fs::read_to_string(path)
}

/// The keys that we know, each with its line and value; others belong to a later version.
fn parse_lines(
    file: &Path,
    text: &str,
) -> Result<BTreeMap<&'static str, (usize, String)>, SubnetEnvError> {
    let mut values: BTreeMap<&'static str, (usize, String)> = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        let wrong = |trouble: String| SubnetEnvError::Line {
            file: file.to_owned(),
            line: number,
            trouble,
        };
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (key, value) = line
            .split_once('=')
            .ok_or_else(|| wrong(format!("{line:?} is not of the form KEY=VALUE")))?;
        let value = value.trim().trim_matches('"');
        let Some(key) = KEYS.into_iter().find(|known| *known == key.trim()) else {
            continue;
        };
        if value.is_empty() {
            return Err(wrong(format!("{key} is empty")));
        }
        if let Some((other, earlier)) = values.get(key).filter(|(_, earlier)| earlier != value) {
            let trouble = format!("{key}={value} contradicts {key}={earlier} in line {other}");
            return Err(wrong(trouble));
        }
        values.insert(key, (number, value.to_owned()));
    }
    Ok(values)
}

fn node_subnet(net: IpNet) -> Result<NodeSubnet, String> {
    if net.max_prefix_len() - net.prefix_len() < 2 {
        return Err(format!(
            "{net} is too small: it holds no pod beside the gateway"
        ));
    }
    let (base, last) = (net.network(), net.broadcast());
    let gateway = (net.addr() != base).then_some(net.addr());
    if net.addr().is_ipv4() && gateway == Some(last) {
        return Err(format!("{net} names the broadcast address as gateway"));
    }
    Ok(NodeSubnet {
        net: net.trunc(),
        gateway,
    })
}

fn overlap(a: &IpNet, b: &IpNet) -> bool {
    a.contains(b) || b.contains(a)
}

fn list(items: &[impl fmt::Display]) -> String {
    items
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(",")
}

#[cfg(test)]
mod tests;
