//! The pod CIDRs of this node, and of the whole cluster.

use std::fmt;
use std::path::PathBuf;

use ipnet::IpNet;

use crate::NodeName;

/// The environment variable with this node's pod CIDRs.
pub const VARIABLE: &str = "NODE_POD_CIDR";

/// The pod CIDRs of a node; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodCidrs {
    /// This node's, at most one per IP family.
    pub local: Vec<IpNet>,
    /// The cluster CIDR that each of `local` is in, or the pod CIDR itself if that is not known.
    pub base: Vec<IpNet>,
    pub source: CidrSource,
    /// The source of `base`, if it is known.
    pub base_source: Option<CidrSource>,
}

impl PodCidrs {
    /// Pod CIDRs of this node whose cluster CIDR is unknown; `configured` is the cluster CIDR of the
    /// configuration. A cluster of one node may have no larger one.
    pub fn without_base(&self, configured: &[IpNet]) -> Vec<IpNet> {
        let stands_for_it = |net: &&IpNet| self.base.contains(net) && !configured.contains(net);
        self.local.iter().filter(stands_for_it).copied().collect()
    }
}

/// Where pod CIDRs come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CidrSource {
    /// `network.podCIDR.nodes.<name>` of the configuration.
    ForNode(NodeName),
    /// `network.podCIDR.nodeLocal` of the configuration.
    NodeLocal,
    /// `network.podCIDR.base` of the configuration: the cluster CIDR.
    Base,
    /// [`VARIABLE`].
    Variable,
    File(PathBuf),
    /// `spec.podCIDRs` of the Node object.
    NodeObject,
    /// A guess from the node's name.
    Hash,
    /// A guess without any input.
    Default,
}

impl CidrSource {
    /// Whether another node may arrive at the same pod CIDR by it.
    pub fn is_guess(&self) -> bool {
        matches!(self, Self::Hash | Self::Default)
    }
}

impl fmt::Display for CidrSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ForNode(node) => write!(f, "network.podCIDR.nodes.{node}"),
            Self::NodeLocal => f.write_str("network.podCIDR.nodeLocal"),
            Self::Base => f.write_str("network.podCIDR.base"),
            Self::Variable => f.write_str(VARIABLE),
            Self::File(path) => path.display().fmt(f),
            Self::NodeObject => f.write_str("Node.spec.podCIDRs"),
            Self::Hash => f.write_str("a guess from the node's name"),
            Self::Default => f.write_str("a guess without any input"),
        }
    }
}
