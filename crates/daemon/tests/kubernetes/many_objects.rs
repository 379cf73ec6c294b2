//! Many Node and Pod objects, of the size and update rate of a real cluster.

use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use hyper::Request;
use jiff::{Timestamp, Unit};
use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use lab::kubernetes::ControlPlane;
use lab::{Netns, Node};
use serde_json::{Value, json};
use tokio::time::{Instant, interval, timeout_at};

pub(crate) const NODES: usize = 1_000;
pub(crate) const PODS: usize = 10_000;
/// The rest is on other nodes.
const PODS_OF_FIRST: usize = 20;

const PARALLEL_REQUESTS: usize = 16;
/// Pods of other nodes change 20 times per second.
const POD_INTERVAL: Duration = Duration::from_millis(50);
/// An idle kubelet updates its Node every five minutes; one of a thousand does so at this interval.
const NODE_INTERVAL: Duration = Duration::from_millis(300);

pub(crate) struct Objects<'a> {
    server: &'a Node,
    kubeconfig: Kubeconfig,
}

#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) pods: usize,
    pub(crate) nodes: usize,
}

impl<'a> Objects<'a> {
    pub(crate) fn create(server: &'a Node, plane: &ControlPlane) -> Self {
        let objects = Self {
            server,
            kubeconfig: Kubeconfig::read_from(plane.admin().kubeconfig()).unwrap(),
        };
        let nodes = (1..=NODES).map(|number| ("/api/v1/nodes", node(number)));
        let path = "/api/v1/namespaces/default/pods";
        let pods = (0..PODS).map(|number| (path, pod(number)));
        objects.run(async |client| {
            let all = stream::iter(nodes.chain(pods));
            let made = all.map(|(path, object)| post(client, path, object));
            let made = made
                .buffer_unordered(PARALLEL_REQUESTS)
                .try_collect::<Vec<()>>();
            made.await.unwrap();
        });
        objects
    }

    /// Updates Pods of other nodes, and Nodes, for a time.
    pub(crate) fn update_for(&self, time: Duration) -> Changes {
        self.run(async |client| {
            let end = Instant::now() + time;
            let mut changes = Changes::default();
            let (mut pods, mut nodes) = (interval(POD_INTERVAL), interval(NODE_INTERVAL));
            loop {
                let next = async {
                    tokio::select! {
                        _ = pods.tick() => {
                            changes.pods += 1;
                            let number = PODS_OF_FIRST + changes.pods % (PODS - PODS_OF_FIRST);
                            (format!("/api/v1/namespaces/default/pods/{}", pod_name(number)), pod_status())
                        }
                        _ = nodes.tick() => {
                            changes.nodes += 1;
                            let number = 1 + changes.nodes % NODES;
                            (format!("/api/v1/nodes/{}", node_name(number)), node_status(number))
                        }
                    }
                };
                let Ok((path, change)) = timeout_at(end, next).await else {
                    return changes;
                };
                patch(client, &path, change).await.unwrap();
            }
        })
    }

    /// With persistent connections from the server's netns.
    fn run<T: Send>(&self, work: impl AsyncFnOnce(&Client) -> T + Send) -> T {
        let run = || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().unwrap();
            runtime.block_on(async {
                let options = KubeConfigOptions::default();
                let config = Config::from_custom_kubeconfig(self.kubeconfig.clone(), &options);
                let client = Client::try_from(config.await.unwrap()).unwrap();
                work(&client).await
            })
        };
        self.server.enter(run).unwrap()
    }
}

async fn post(client: &Client, path: &str, object: Value) -> kube::Result<()> {
    let request = Request::post(path).header("Content-Type", "application/json");
    let request = request.body(object.to_string().into_bytes()).unwrap();
    client.request_text(request).await.map(drop)
}

async fn patch(client: &Client, path: &str, change: Value) -> kube::Result<()> {
    let request = Request::patch(format!("{path}/status"));
    let request = request.header("Content-Type", "application/strategic-merge-patch+json");
    let request = request.body(change.to_string().into_bytes()).unwrap();
    client.request_text(request).await.map(drop)
}

fn node_name(number: usize) -> String {
    format!("node-{number}")
}

fn pod_name(number: usize) -> String {
    format!("web-frontend-6d4cf56db6-{number:05}")
}

/// The cluster CIDR has no room for a thousand /24.
pub(crate) fn pod_cidrs(number: usize) -> [String; 2] {
    let (third, fourth) = (number / 4, number % 4 * 64);
    [
        format!("10.244.{third}.{fourth}/26"),
        format!("fd00:10:244:{number:x}::/64"),
    ]
}

fn node(number: usize) -> Value {
    let [v4, v6] = pod_cidrs(number);
    let name = node_name(number);
    let images = (0..10).map(|image| {
        json!({
            "names": [
                format!("registry.example.org/team-{image}/service@sha256:{:064x}", number + image),
                format!("registry.example.org/team-{image}/service:v1.{image}.0"),
            ],
            "sizeBytes": 31_415_926 + image,
        })
    });
    let mut status = node_status(number);
    status["status"]["images"] = images.collect();
    status["status"]["capacity"] = json!({
        "cpu": "16", "ephemeral-storage": "102350Mi", "hugepages-1Gi": "0", "hugepages-2Mi": "0",
        "memory": "65843224Ki", "pods": "110",
    });
    status["status"]["allocatable"] = status["status"]["capacity"].clone();
    status["status"]["addresses"] = json!([
        { "type": "InternalIP", "address": format!("172.16.{}.{}", number / 250, 1 + number % 250) },
        { "type": "Hostname", "address": name },
    ]);
    status["status"]["nodeInfo"] = json!({
        "architecture": "amd64", "operatingSystem": "linux", "kernelVersion": "6.1.0-31-amd64",
        "osImage": "Debian GNU/Linux 12 (bookworm)", "kubeletVersion": "v1.37.1",
        "kubeProxyVersion": "v1.37.1", "containerRuntimeVersion": "containerd://2.4.2",
        "bootID": format!("8c3b6f3a-7f5c-4f0e-9d0a-{number:012x}"),
        "machineID": format!("{number:032x}"), "systemUUID": format!("{number:032x}"),
    });
    let mut node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
                "kubernetes.io/hostname": name, "node.kubernetes.io/instance-type": "m-16",
                "topology.kubernetes.io/region": "eu-1", "topology.kubernetes.io/zone": "eu-1a",
            },
            "annotations": {
                "node.alpha.kubernetes.io/ttl": "30",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
                "csi.volume.kubernetes.io/nodeid": format!("{{\"csi.example.org\":\"i-{number:017x}\"}}"),
            },
        },
        "spec": { "podCIDR": v4, "podCIDRs": [v4, v6], "providerID": format!("example:///i-{number:017x}") },
    });
    node["status"] = status["status"].take();
    node
}

/// The periodic status of a kubelet.
fn node_status(number: usize) -> Value {
    let now = now();
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": now, "lastTransitionTime": "2026-11-01T00:00:00Z",
        })
    };
    let sufficient = |kind: &str, what: &str| {
        let reason = format!("KubeletHasSufficient{what}");
        condition(
            kind,
            "False",
            &reason,
            &format!("kubelet has sufficient {what} available"),
        )
    };
    json!({ "status": {
        "conditions": [
            sufficient("MemoryPressure", "Memory"),
            sufficient("DiskPressure", "Disk"),
            sufficient("PIDPressure", "PID"),
            condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        ],
        "daemonEndpoints": { "kubeletEndpoint": { "Port": 10_250 + number % 2 } },
    } })
}

fn pod(number: usize) -> Value {
    let node = if number < PODS_OF_FIRST {
        1
    } else {
        2 + number % (NODES - 1)
    };
    let variables = (0..4).map(|variable| {
        json!({ "name": format!("SERVICE_SETTING_{variable}"), "value": format!("value-of-{variable}") })
    });
    let variables: Value = variables.collect();
    let probe = json!({
        "httpGet": { "path": "/healthz", "port": 8080 }, "periodSeconds": 10, "timeoutSeconds": 3,
    });
    let container = |name: &str| {
        json!({
            "name": name,
            "image": format!("registry.example.org/team/{name}@sha256:{number:064x}"),
            "env": variables,
            "ports": [{ "containerPort": 8080, "name": format!("{name}-http") }],
            "resources": { "requests": { "cpu": "100m", "memory": "64Mi" }, "limits": { "memory": "128Mi" } },
            "livenessProbe": probe,
            "readinessProbe": probe,
        })
    };
    let labels = json!({
        "app.kubernetes.io/name": "web-frontend", "app.kubernetes.io/part-of": "shop",
        "app.kubernetes.io/version": "1.4.2", "pod-template-hash": "6d4cf56db6",
    });
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(number),
            "labels": labels,
            "annotations": {
                "kubernetes.io/config.seen": now(), "prometheus.io/scrape": "true",
                "checksum/config": format!("{number:064x}"),
            },
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-frontend-6d4cf56db6",
                "uid": "5f0cf8e0-0b52-4e0d-9e0b-0c5f6a1d2b3c", "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": { "nodeName": node_name(node), "containers": [container("app"), container("proxy")] },
    })
}

/// The status of a Pod that has become ready.
fn pod_status() -> Value {
    let now = now();
    let kinds = [
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
    ];
    let conditions =
        kinds.map(|kind| json!({ "type": kind, "status": "True", "lastTransitionTime": now }));
    json!({ "status": { "phase": "Running", "startTime": now, "conditions": conditions } })
}

fn now() -> String {
    let now = Timestamp::now();
    now.round(Unit::Second).unwrap_or(now).to_string()
}
