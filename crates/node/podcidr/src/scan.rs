//! Finds pod CIDRs and cluster CIDRs in YAML files of Kubernetes and k3s, and in flags.
//!
//! A file may contain credentials: only values of known keys are stored, and errors never quote it.

mod flags;
mod lines;
mod yaml;

use ipnet::IpNet;

use node_config::Networks;

const MAX_FINDINGS: usize = 64;
const MAX_VALUES: usize = 8;
const MAX_VALUE_BYTES: usize = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Node,
    Cluster,
}

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

#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    key: Key,
    value: Value,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Texts(Vec<String>),
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

#[derive(Debug, Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, key: Key, value: Value) {
        if self.0.len() < MAX_FINDINGS && !value.is_empty() {
            self.0.push(Finding { key, value });
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SyntaxError {
    pub(super) line: u64,
    pub(super) column: u64,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) node: ScopeCidrs,
    pub(super) cluster: ScopeCidrs,
    /// Set if it is not YAML and was read line by line.
    pub(super) broken: Option<SyntaxError>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ScopeCidrs {
    /// The CIDRs and their key.
    pub(super) networks: Option<(&'static str, Vec<IpNet>)>,
    /// Invalid values.
    pub(super) problems: Vec<String>,
}

/// Whether an error may quote a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Echo {
    Values,
    Nothing,
}

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

/// The CIDRs on which all findings agree. One may omit a family, as `podCIDR` beside `podCIDRs`.
fn agree(findings: &Findings, scope: Scope, echo: Echo) -> ScopeCidrs {
    let mut found = ScopeCidrs::default();
    let Findings(findings) = findings;
    for Finding { key, value } in findings.iter().filter(|f| f.key.scope == scope) {
        let name = key.name;
        let networks = match networks(value) {
            Ok(networks) => networks,
            Err(problem) => {
                let problem = match echo {
                    Echo::Values => problem,
                    Echo::Nothing => "it is no network".to_owned(),
                };
                found.problems.push(format!("{name}: {problem}"));
                continue;
            }
        };
        match &found.networks {
            None => found.networks = Some((name, networks)),
            Some((_, before)) if networks.iter().all(|net| before.contains(net)) => {}
            Some((_, before)) if before.iter().all(|net| networks.contains(net)) => {
                found.networks = Some((name, networks));
            }
            Some((first, before)) => {
                found.problems = vec![format!(
                    "{first} is {}, but {name} is {}",
                    Networks(before.clone()),
                    Networks(networks)
                )];
                found.networks = None;
                return found;
            }
        }
    }
    found
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
