//! The configuration files of containerd, kubelet and kube-proxy.

use std::path::Path;

use serde_json::{Value, json};

use super::{IMAGE, MANIFESTS, ProxyMode, READ_ONLY_SERVER, SOCKET};
use crate::scenario::CLUSTER_CIDRS;

/// `restrict_oom_score_adj`: root without `CAP_SYS_RESOURCE` cannot lower the OOM score of containers.
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

/// Without a CA the kubelet is a standalone one. It evicts nothing: disk and memory are the host's.
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
        // Otherwise the kubelet would set sysctls of the host. The machine's script covers them.
        "protectKernelDefaults": true,
        "oomScoreAdj": 0,
        "clusterDNS": ["10.96.0.10"],
        "clusterDomain": "cluster.local",
        "resolvConf": "/etc/resolv.conf",
        "evictionHard": never,
        "imageGCHighThresholdPercent": 100,
        "nodeStatusUpdateFrequency": "5s",
    });
    let more = authority.map_or_else(standalone, clustered);
    for (key, value) in more.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    config
}

/// Requests are authorized by the API server.
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

/// Serves only its own node, without authorization.
fn standalone() -> Value {
    json!({
        "authentication": {
            "anonymous": { "enabled": true },
            "webhook": { "enabled": false },
        },
        "authorization": { "mode": "AlwaysAllow" },
        "address": READ_ONLY_SERVER.ip(),
        "readOnlyPort": READ_ONLY_SERVER.port(),
        "staticPodPath": MANIFESTS,
        "fileCheckFrequency": "2s",
    })
}

/// Sets no conntrack limits, which are the host's.
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
        "clusterCIDR": CLUSTER_CIDRS.map(|network| network.to_string()).join(","),
        "clientConnection": { "kubeconfig": kubeconfig },
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
    })
}
