//! Which addresses this node's pods get: the node's networks, and the whole cluster's.
//!
//! Sources are asked in the order of a ladder, and the first that knows wins: the configuration,
//! `NODE_POD_CIDR`, files of Kubernetes and k3s on this node, the Node object of the Kubernetes API; and,
//! if that is allowed, a guess.
//! Whatever wins is checked. [`Discovery`] says what was looked at and why it counted or did not.
//! docs/podcidr.md explains it to users.

mod check;
mod explain;
mod files;
mod guess;
mod ladder;
mod scan;

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use ipnet::IpNet;

pub use check::Unfit;
pub(crate) use guess::fnv1a;

use crate::config::Network;
use crate::kubernetes::Answer;
use crate::node_name::NodeName;

/// The variable that says this node's networks.
pub const VARIABLE: &str = "NODE_POD_CIDR";

/// What a discovery begins with.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// Where the node's files are: `/`, unless the node's root is mounted elsewhere.
    pub root: &'a Path,
    /// The node.
    pub node: &'a NodeName,
    /// What the configuration says.
    pub network: &'a Network,
    /// The value of [`VARIABLE`].
    pub variable: Option<&'a OsStr>,
    /// What the Kubernetes API says.
    pub kubernetes: Answer<'a>,
}

/// What was found out, and how.
#[derive(Clone, Debug)]
pub struct Discovery {
    /// The node.
    pub node: NodeName,
    /// Its networks, or why they are not known.
    pub outcome: Result<NodeNetworks, PodCidrError>,
    /// All sources in the ladder's order, with what each of them says.
    pub looked: Vec<Looked>,
    /// What is allowed, but hardly meant.
    pub warnings: Vec<String>,
}

/// The networks of a node's pods. There is at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeNetworks {
    /// This node's, at most one per IP family.
    pub local: Vec<IpNet>,
    /// The whole cluster's: for each of `local` the one that it is in, or itself if that is not
    /// known.
    pub base: Vec<IpNet>,
    /// Where `local` is from.
    pub source: Source,
    /// Where `base` is from, if it is known.
    pub base_source: Option<Source>,
}

impl NodeNetworks {
    /// Those of this node whose cluster's network is not known; `said` is what the configuration says the
    /// cluster's to be. A cluster of one node may have no more.
    pub fn without_base(&self, said: &[IpNet]) -> Vec<IpNet> {
        let stands_for_it = |net: &&IpNet| self.base.contains(net) && !said.contains(net);
        self.local.iter().filter(stands_for_it).copied().collect()
    }
}

/// Where networks are from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// `network.podCIDR.nodes.<name>` of the configuration.
    ForNode(NodeName),
    /// `network.podCIDR.nodeLocal` of the configuration.
    NodeLocal,
    /// `network.podCIDR.base` of the configuration: the cluster's networks.
    Base,
    /// [`VARIABLE`].
    Variable,
    /// A file on this node.
    File(PathBuf),
    /// The Node object of the Kubernetes API.
    NodeObject,
    /// The node's name. A guess.
    Hash,
    /// Nowhere. A guess.
    Default,
}

impl Source {
    /// Whether another node may come to the same networks by it.
    pub fn is_guess(&self) -> bool {
        matches!(self, Self::Hash | Self::Default)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ForNode(node) => write!(f, "network.podCIDR.nodes.{node}"),
            Self::NodeLocal => f.write_str("network.podCIDR.nodeLocal"),
            Self::Base => f.write_str("network.podCIDR.base"),
            Self::Variable => f.write_str(VARIABLE),
            Self::File(path) => path.display().fmt(f),
            Self::NodeObject => f.write_str("Node.spec.podCIDRs"),
            Self::Hash => f.write_str("guess from the node's name"),
            Self::Default => f.write_str("guess without any knowledge"),
        }
    }
}

/// A source, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looked {
    /// The source.
    pub source: Source,
    /// What came of it.
    pub verdict: Verdict,
}

/// What came of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It says the node's networks, and no source above it does.
    Won(String),
    /// It says something that can't be: that is an error.
    Refused(String),
    /// It does not say the node's networks; why.
    Passed(String),
    /// A source above it has won or was refused, so that it wasn't looked at.
    NotReached,
}

/// Why a node's networks are not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PodCidrError {
    /// A source says something that can't be, and nobody below it is asked instead.
    #[error("{origin}: {trouble}")]
    Unfit {
        /// Who says it.
        origin: Source,
        /// What is wrong.
        trouble: Unfit,
    },
    /// The Kubernetes API is to say it, and has not yet.
    #[error("the PodCIDR of node {node} is awaited from the Kubernetes API: {why}")]
    Awaited {
        /// The node.
        node: NodeName,
        /// What is waited for.
        why: &'static str,
    },
    /// Nobody says it.
    #[error(
        "the PodCIDR of node {node} is not known: looked at {}; set network.podCIDR.nodes.{node} or \
         network.podCIDR.nodeLocal or {VARIABLE}, or allow a guess by network.podCIDR.allowGuess \
         and network.podCIDR.base",
        explain::list(looked)
    )]
    Unknown {
        /// The node.
        node: NodeName,
        /// What was looked at.
        looked: Vec<Looked>,
    },
}

/// Finds out a node's networks. It reads files, so it blocks.
pub fn discover(question: &Question<'_>) -> Discovery {
    ladder::climb(question)
}
