//! Discovers the pod CIDRs of this node and the cluster CIDRs.
//!
//! The first source that has a pod CIDR is selected: the configuration, `NODE_POD_CIDR`, files of
//! Kubernetes and k3s, the Node object, and, if allowed, a guess. The result is validated, and
//! [`Discovery`] explains every source. See docs/podcidr.md.

mod check;
pub mod controller;
mod explain;
mod files;
mod guess;
mod resolver;
mod scan;

use std::ffi::OsStr;
use std::path::Path;

pub use check::InvalidCidrs;

use node_config::Network;
use node_core::pod_cidrs::VARIABLE;
use node_core::{AssignedCidrs, CidrSource, NodeName, PodCidrs};

/// The input of a discovery.
#[derive(Clone, Copy, Debug)]
pub struct DiscoveryInput<'a> {
    /// The root directory of the node: `/`, unless it is mounted elsewhere.
    pub root: &'a Path,
    pub node: &'a NodeName,
    pub network: &'a Network,
    /// The value of [`VARIABLE`].
    pub variable: Option<&'a OsStr>,
    pub kubernetes: AssignedCidrs<'a>,
}

/// The result of a discovery, and its explanation.
#[derive(Clone, Debug)]
pub struct Discovery {
    pub node: NodeName,
    pub outcome: Result<PodCidrs, PodCidrError>,
    /// All sources in order of precedence.
    pub sources: Vec<SourceReport>,
    /// Values that are allowed but probably a mistake.
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceReport {
    pub source: CidrSource,
    pub result: SourceResult,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceResult {
    /// It has the pod CIDRs.
    Selected(String),
    /// It has invalid pod CIDRs, which is an error.
    Rejected(String),
    /// Why it has no usable pod CIDR.
    Skipped(String),
    /// A source of higher precedence was selected or rejected.
    NotReached,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PodCidrError {
    /// A source is invalid. Sources of lower precedence are not tried.
    #[error("{origin}: {problem}")]
    InvalidCidrs {
        origin: CidrSource,
        problem: InvalidCidrs,
    },
    /// The Kubernetes API has not provided the pod CIDR yet.
    #[error("the PodCIDR of node {node} is awaited from the Kubernetes API: {why}")]
    Awaited { node: NodeName, why: &'static str },
    #[error(
        "the PodCIDR of node {node} is not known: tried {}; set network.podCIDR.nodes.{node} or \
         network.podCIDR.nodeLocal or {VARIABLE}, or allow a guess by network.podCIDR.allowGuess \
         and network.podCIDR.base",
        explain::list(sources)
    )]
    Unknown {
        node: NodeName,
        sources: Vec<SourceReport>,
    },
}

/// Discovers the pod CIDRs of a node. It reads files, so it blocks.
pub fn discover(input: &DiscoveryInput<'_>) -> Discovery {
    resolver::resolve(input)
}
