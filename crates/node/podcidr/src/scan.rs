//! What a text says about networks of pods: the node's own, and the whole cluster's.
//!
//! The text is a YAML file of Kubernetes or k3s, or lines with flags. It may hold credentials, so
//! nothing of it is kept but the values of the keys that are looked for; a complaint names a place
//! in the text, never the text.

mod flags;
mod lines;
mod yaml;

use ipnet::IpNet;

use node_config::Networks;

/// No file says it more often than that.
const MAX_FINDINGS: usize = 64;
/// A list of networks has no more.
const MAX_VALUES: usize = 8;
/// The longest text of a network in each family, with room.
const MAX_VALUE_BYTES: usize = 128;

/// Whose networks a key names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Node,
    Cluster,
}

/// A key that names networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    name: &'static str,
    scope: Scope,
}

/// Keys of YAML maps. The kubelet has `podCIDR`, Node objects have `podCIDRs` too, kubeadm has
/// `podSubnet`, kube-proxy `clusterCIDR`; k3s's keys and kubeadm's `extraArgs` are names of flags.
const KEYS: [Key; 6] = [
    Key::of_node("podCIDR"),
    Key::of_node("podCIDRs"),
    Key::of_node("pod-cidr"),
    Key::of_cluster("podSubnet"),
    Key::of_cluster("clusterCIDR"),
    Key::of_cluster("cluster-cidr"),
];

/// Flags of the kubelet, kube-controller-manager and k3s.
const FLAGS: [Key; 2] = [
    Key::of_node("--pod-cidr"),
    Key::of_cluster("--cluster-cidr"),
];

impl Key {
    const fn of_node(name: &'static str) -> Self {
        let scope = Scope::Node;
        Self { name, scope }
    }

    const fn of_cluster(name: &'static str) -> Self {
        let scope = Scope::Cluster;
        Self { name, scope }
    }

    fn of_yaml(name: &str) -> Option<Self> {
        KEYS.into_iter().find(|key| key.name == name)
    }

    fn of_flag(name: &str) -> Option<Self> {
        FLAGS.into_iter().find(|key| key.name == name)
    }
}

/// A key with what stands behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    key: Key,
    value: Value,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    /// One text, or the texts of a list.
    Texts(Vec<String>),
    /// Something that can't be a network.
    Wrong,
}

impl Value {
    fn of_text(text: &str) -> Self {
        if text.len() > MAX_VALUE_BYTES {
            Self::Wrong
        } else {
            Self::Texts(vec![text.to_owned()])
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Texts(texts) => texts.iter().all(|text| text.trim().is_empty()),
            Self::Wrong => false,
        }
    }
}

/// All that was found in a text, in its order.
#[derive(Debug, Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, key: Key, value: Value) {
        if self.0.len() < MAX_FINDINGS && !value.is_empty() {
            self.0.push(Finding { key, value });
        }
    }
}

/// Where a text stops being YAML.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken {
    pub(super) line: u64,
    pub(super) column: u64,
}

/// What a text says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    /// The node's own networks.
    pub(super) node: Said,
    /// The whole cluster's.
    pub(super) cluster: Said,
    /// Set if it is no YAML and was read line by line.
    pub(super) broken: Option<Broken>,
}

/// What a text says about networks of one scope.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// Networks, and the key that names them.
    pub(super) networks: Option<(&'static str, Vec<IpNet>)>,
    /// What it says, too, and can't be used.
    pub(super) troubles: Vec<String>,
}

/// Whether a complaint about a value may show the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Echo {
    Values,
    Nothing,
}

/// Looks for networks in a text.
pub(super) fn scan(text: &str, echo: Echo) -> Report {
    let (findings, broken) = match yaml::documents(text) {
        Ok(findings) => (findings, None),
        Err(broken) => (lines::findings(text), Some(broken)),
    };
    Report {
        node: agree(&findings, Scope::Node, echo),
        cluster: agree(&findings, Scope::Cluster, echo),
        broken,
    }
}

/// The networks that all findings of a scope agree on: one of them may leave out a family that
/// another one has, as `podCIDR` and `podCIDRs` do.
fn agree(findings: &Findings, scope: Scope, echo: Echo) -> Said {
    let mut said = Said::default();
    let Findings(findings) = findings;
    for Finding { key, value } in findings.iter().filter(|f| f.key.scope == scope) {
        let name = key.name;
        let networks = match networks(value) {
            Ok(networks) => networks,
            Err(trouble) => {
                let trouble = match echo {
                    Echo::Values => trouble,
                    Echo::Nothing => "it is no network".to_owned(),
                };
                said.troubles.push(format!("{name}: {trouble}"));
                continue;
            }
        };
        match &said.networks {
            None => said.networks = Some((name, networks)),
            Some((_, before)) if networks.iter().all(|net| before.contains(net)) => {}
            Some((_, before)) if before.iter().all(|net| networks.contains(net)) => {
                said.networks = Some((name, networks));
            }
            Some((first, before)) => {
                said.troubles = vec![format!(
                    "{first} is {}, but {name} is {}",
                    Networks(before.clone()),
                    Networks(networks)
                )];
                said.networks = None;
                return said;
            }
        }
    }
    said
}

fn networks(value: &Value) -> Result<Vec<IpNet>, String> {
    let Value::Texts(texts) = value else {
        return Err("it is no network, nor a list of networks".to_owned());
    };
    let Networks(networks) = texts.join(",").parse()?;
    if networks.is_empty() {
        return Err("it names no network".to_owned());
    }
    Ok(networks)
}

#[cfg(test)]
mod tests;
