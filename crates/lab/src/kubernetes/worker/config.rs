//! What containerd, kubelet and kube-proxy are told.

use std::path::Path;

use serde_json::{Value, json};

use super::{IMAGE, MANIFESTS, ProxyMode, SOCKET, TOLD};
use crate::cluster::POD_NETWORKS;

/// containerd's. A root without `CAP_SYS_RESOURCE`, as in some virtual machines, can't give
/// containers the priority that they should have when memory runs out.
pub(super) fn containerd() -> String {
    format!(
        r#"version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "{SOCKET}"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "{IMAGE}"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      SystemdCgroup = false
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["/opt/cni/bin"]
    conf_dir = "/etc/cni/net.d"
"#
    )
}

/// The kubelet's, of a cluster whose authority this is, or of none. It evicts nobody: the disk and the
/// memory are the machine's, and others fill them.
pub(super) fn kubelet(authority: Option<&Path>, cgroup: &str) -> Value {
    let never = [
        "memory.available",
        "nodefs.available",
        "nodefs.inodesFree",
        "imagefs.available",
        "imagefs.inodesFree",
    ];
    let never = never.map(|signal| (signal.to_owned(), json!("0%")));
    let never: serde_json::Map<_, _> = never.into_iter().collect();
    let mut config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": format!("unix://{SOCKET}"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{cgroup}"),
        "failCgroupV1": false,
        "failSwapOn": false,
        // It looks whether sysctls of the whole machine are as it wants them, and finds them so: see
        // the machine's script. Otherwise it would set them.
        "protectKernelDefaults": true,
        "oomScoreAdj": 0,
        "clusterDNS": ["10.96.0.10"],
        "clusterDomain": "cluster.local",
        "resolvConf": "/etc/resolv.conf",
        "evictionHard": never,
        "imageGCHighThresholdPercent": 100,
        "nodeStatusUpdateFrequency": "5s",
    });
    let more = authority.map_or_else(alone, clustered);
    for (key, value) in more.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    config
}

/// Who may ask the kubelet of a cluster is known to its API server.
fn clustered(authority: &Path) -> Value {
    json!({
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": authority },
        },
        "authorization": { "mode": "Webhook" },
    })
}

/// One that is alone can ask nobody, so only its own node may ask it.
fn alone() -> Value {
    json!({
        "authentication": {
            "anonymous": { "enabled": true },
            "webhook": { "enabled": false },
        },
        "authorization": { "mode": "AlwaysAllow" },
        "address": TOLD.ip(),
        "readOnlyPort": TOLD.port(),
        "staticPodPath": MANIFESTS,
        "fileCheckFrequency": "2s",
    })
}

/// kube-proxy's. What it would set of conntrack's limits is the whole machine's, so it sets nothing.
pub(super) fn proxy(node: &str, kubeconfig: &Path, mode: ProxyMode) -> Value {
    let mode = match mode {
        ProxyMode::Nftables => "nftables",
        ProxyMode::Iptables => "iptables",
    };
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": mode,
        "hostnameOverride": node,
        "oomScoreAdj": 0,
        "clusterCIDR": POD_NETWORKS.map(|network| network.to_string()).join(","),
        "clientConnection": { "kubeconfig": kubeconfig },
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
    })
}
