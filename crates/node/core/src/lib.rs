//! What the libraries of the node agent share: conditions, metrics, the reconcile loop, files, and
//! the small types that cross between them on `watch` channels.

pub mod backoff;
pub mod cidr;
pub mod conditions;
pub mod error;
pub mod files;
pub mod hash;
pub mod kube_nodes;
pub mod mesh_state;
pub mod metrics;
pub mod node_name;
pub mod pod_cidrs;
pub mod reconcile;
pub mod routing;
pub mod state_file;
pub mod tailnet;
pub mod text;

pub use kube_nodes::{AssignedCidrs, KubeNodes, NodeFacts, OtherNodes};
pub use mesh_state::{MeshLink, MeshState};
pub use node_name::NodeName;
pub use pod_cidrs::{CidrSource, PodCidrs};
pub use state_file::StateFile;

/// The addresses of all attached pods of this node.
pub type PodIps = std::collections::BTreeSet<std::net::IpAddr>;
