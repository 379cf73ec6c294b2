//! Ready-made set-ups for tests. Pick the smallest one that can show what you test:
//!
//! - [`PluginNode`]: one node on which the plugin is called for pods.
//! - [`DaemonNode`]: one node with the real daemon and plugin, without a mesh.
//! - [`MeshCluster`]: nodes with real daemons and tailscaleds on a real Headscale.
//! - [`KubeApi`]: a real kube-apiserver beside a [`MeshCluster`]; Nodes and Pods are objects only.
//! - [`KubeCluster`]: control plane, kubelets, Headscale, and headcni as the chart installs it.

pub mod connectivity;
mod daemon_node;
mod kube_api;
mod kube_cluster;
mod mesh_cluster;
mod mesh_node;
mod plugin_node;

use anyhow::Result;

use crate::netns::Netns;
use crate::node::Node;
use crate::tools;

pub use daemon_node::{CONFLIST, Daemon, DaemonNode};
pub use kube_api::KubeApi;
pub use kube_cluster::{
    DAEMON_IMAGE, KUBE_TIMEOUT, KubeCluster, WebReply, fetch_from, is_ready, object_name, pod_ips,
    pod_object, service_object, web_spec, web_spec_on,
};
pub use mesh_cluster::{
    CLUSTER_CIDRS, JOIN_TIMEOUT, MeshCluster, MeshClusterBuilder, NODE_TAG, Site, Topology,
};
pub use mesh_node::{AttachedPod, MeshNode, MeshPath};
pub use plugin_node::PluginNode;

const CONFIG: &str = "/etc/headcni/daemon.yaml";
const ADMIN: &str = "127.0.0.1:9844";

/// Empties the CNI and headcni directories, which start as the host's, and links the plugins.
fn install_plugins(node: &Node) -> Result<()> {
    let dirs = [tools::headcni_bin_dir(), tools::cni_plugin_dir()];
    let links = dirs.map(|dir| format!("ln -s {}/* /opt/cni/bin/\n", dir.display()));
    let script = format!(
        "rm -rf /etc/cni /opt/cni /var/lib/cni /var/lib/headcni /etc/headcni
         mkdir -p /etc/cni/net.d /opt/cni/bin /etc/headcni
         {}",
        links.concat()
    );
    node.run(["sh", "-ec", &script])?;
    Ok(())
}
