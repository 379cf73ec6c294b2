//! Which addresses this node's pods get: the node's networks, and the whole cluster's.
//!
//! Sources are asked in the order of a ladder, and the first that knows wins: the configuration,
//! `NODE_POD_CIDR`, files of Kubernetes and k3s on this node, the Node object of the Kubernetes API; and,
//! if that is allowed, a guess.
//! Whatever wins is checked. [`Discovery`] says what was looked at and why it counted or did not.
//! docs/podcidr.md explains it to users.

mod check;
pub mod controller;
mod explain;
mod files;
mod guess;
mod ladder;
mod scan;

use std::ffi::OsStr;
use std::path::Path;

pub use check::Unfit;

use node_config::Network;
use node_core::pod_cidrs::VARIABLE;
use node_core::{AssignedCidrs, CidrSource, NodeName, PodCidrs};

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
    pub kubernetes: AssignedCidrs<'a>,
}

/// What was found out, and how.
#[derive(Clone, Debug)]
pub struct Discovery {
    /// The node.
    pub node: NodeName,
    /// Its networks, or why they are not known.
    pub outcome: Result<PodCidrs, PodCidrError>,
    /// All sources in the ladder's order, with what each of them says.
    pub looked: Vec<Looked>,
    /// What is allowed, but hardly meant.
    pub warnings: Vec<String>,
}

/// A source, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looked {
    /// The source.
    pub source: CidrSource,
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
        origin: CidrSource,
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
