//! A whole cluster: control plane, Headscale, kubelets, and headcni as its chart installs it.

#![expect(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a scenario fails the test that uses it"
)]

use std::fmt::Write;
use std::fs;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::mesh_cluster::{CLUSTER_CIDRS, JOIN_TIMEOUT, NODE_TAG, Site, Topology};
use crate::headscale::{Headscale, open_policy};
use crate::kubernetes::{self, ControlPlane, Helm, Image, SERVICE_CIDRS, Worker};
use crate::netns::Netns;
use crate::node::Node;
use crate::tools;
use crate::wait::{eventually, eventually_slowly};

/// How long all Pods of a test may take to start, on a busy machine.
pub const KUBE_TIMEOUT: Duration = Duration::from_mins(3);

/// The image of the chart's own version, and the same image as a later one.
pub const DAEMON_IMAGE: &str = "localhost/headcni:0.1.0";
const NEXT_DAEMON_IMAGE: &str = "localhost/headcni:0.1.1";

#[derive(Debug)]
pub struct KubeCluster {
    pub topology: Topology,
    // Dropped in this order.
    pub workers: Vec<Worker>,
    pub helm: Helm,
    pub plane: ControlPlane,
    pub headscale: Headscale,
}

impl KubeCluster {
    /// `count` open nodes without headcni: no Node is Ready.
    pub fn prepare(count: usize) -> Self {
        Self::prepare_at(&vec![Site::Open; count])
    }

    pub fn prepare_at(sites: &[Site]) -> Self {
        let topology = Topology::new(sites).unwrap();
        let headscale = Self::start_headscale(&topology);
        Self::with_kubelets(topology, headscale, |node, plane| {
            Worker::start(node, plane).unwrap()
        })
    }

    /// With a Headscale that runs already, and kubelets started by `start`.
    pub fn with_kubelets(
        topology: Topology,
        headscale: Headscale,
        start: impl Fn(&Node, &ControlPlane) -> Worker,
    ) -> Self {
        let mut plane = ControlPlane::start(&topology.server).unwrap();
        plane.start_scheduler().unwrap();
        let images = [DAEMON_IMAGE, NEXT_DAEMON_IMAGE].map(|name| Image::headcni(name).unwrap());
        let workers = topology.nodes.iter().map(|node| {
            let worker = start(node, &plane);
            for image in &images {
                worker.import(image).unwrap();
            }
            // Every container runtime ships this plugin.
            let copy = format!(
                "rm -rf /opt/cni; mkdir -p /opt/cni/bin; cp {}/loopback /opt/cni/bin/",
                tools::cni_plugin_dir().display()
            );
            node.run(["sh", "-ec", &copy]).unwrap();
            worker
        });
        let cluster = Self {
            workers: workers.collect(),
            helm: Helm::new(&topology.server, &plane).unwrap(),
            topology,
            plane,
            headscale,
        };
        cluster.create_secrets();
        cluster
    }

    /// A Headscale whose policy lets all nodes and pods reach each other.
    pub fn start_headscale(topology: &Topology) -> Headscale {
        let address = IpAddr::V4(topology.server_port.v4);
        let headscale = Headscale::start(&topology.server, &tools::HEADSCALE, address).unwrap();
        headscale
            .set_policy(&open_policy(NODE_TAG, &CLUSTER_CIDRS))
            .unwrap();
        headscale
    }

    /// As `kubectl create secret` and `kubectl create configmap` would.
    fn create_secrets(&self) {
        let object = |kind: &str, name: &str, data: (&str, Value)| {
            let metadata = json!({ "name": name, "namespace": "kube-system" });
            json!({ "apiVersion": "v1", "kind": kind, "metadata": metadata, data.0: data.1 })
        };
        let key = self.headscale.api_key().unwrap();
        let ca = fs::read_to_string(self.headscale.ca_file()).unwrap();
        let keys = ("stringData", json!({ "api-key": key }));
        self.apply(&object("Secret", "headcni", keys));
        let ca = ("data", json!({ "ca.crt": ca }));
        self.apply(&object("ConfigMap", "mesh-ca", ca));
    }

    /// The command of docs/install.md, with this cluster's addresses.
    pub fn install(&self) {
        self.helm(&["install"], &[]);
    }

    /// `helm install` or `helm upgrade`, with more arguments.
    pub fn helm(&self, verb: &[&str], more: &[&str]) -> String {
        let list = |nets: &[String]| format!("{{{}}}", nets.join(","));
        let base = list(&CLUSTER_CIDRS.map(|net| net.to_string()));
        let service = list(&SERVICE_CIDRS.map(str::to_owned));
        let sets = [
            format!("config.network.podCIDR.base={base}"),
            format!("config.network.serviceCIDR={service}"),
            format!("config.headscale.url={}", self.headscale.url()),
            "headscale.existingSecret=headcni".to_owned(),
            "headscale.caConfigMap=mesh-ca".to_owned(),
        ];
        let sets = sets.iter().flat_map(|set| ["--set", set.as_str()]);
        let words: Vec<_> = verb
            .iter()
            .copied()
            .chain(["headcni", "charts/headcni"])
            .chain(sets)
            .chain(more.iter().copied())
            .collect();
        self.helm.run(&words).unwrap_or_else(|error| {
            panic!("{error:#}\n{}", self.diagnostics());
        })
    }

    pub fn apply(&self, object: &Value) {
        self.plane.admin().apply(object).unwrap();
    }

    pub fn get(&self, path: &str) -> Value {
        self.plane.admin().get(path).unwrap()
    }

    /// The Pods in the namespace `default` with the label `app`.
    pub fn pods(&self, app: &str) -> Vec<Value> {
        let path = format!("/api/v1/namespaces/default/pods?labelSelector=app%3D{app}");
        self.get(&path)["items"].as_array().unwrap().clone()
    }

    /// Waits until exactly `count` Pods with the label `app` exist and are Ready.
    pub fn await_pods(&self, app: &str, count: usize) -> Vec<Value> {
        let what = format!("{count} Pods of {app} are Ready");
        let ready = || {
            let pods = self.pods(app);
            (pods.len() == count && pods.iter().all(is_ready)).then_some(pods)
        };
        eventually_slowly(KUBE_TIMEOUT, &what, ready).unwrap_or_else(|error| {
            let states = self.pods(app).into_iter().map(|pod| pod["status"].clone());
            let states: Vec<_> = states.collect();
            panic!("{error:#}: {:#}\n{}", json!(states), self.diagnostics())
        })
    }

    pub fn await_nodes(&self) {
        for node in &self.topology.nodes {
            self.await_node(node.name());
        }
    }

    pub fn await_node(&self, name: &str) {
        eventually_slowly(KUBE_TIMEOUT, &format!("{name} is Ready"), || {
            self.is_node_ready(name).then_some(())
        })
        .unwrap_or_else(|error| panic!("{error:#}\n{}", self.diagnostics()));
    }

    pub fn is_node_ready(&self, name: &str) -> bool {
        let path = format!("/api/v1/nodes/{name}");
        self.plane
            .admin()
            .get(&path)
            .is_ok_and(|node| is_ready(&node))
    }

    pub fn worker_of(&self, pod: &Value) -> &Worker {
        let name = pod["spec"]["nodeName"].as_str().unwrap();
        let node = self.number_of(name);
        &self.workers[node]
    }

    pub fn number_of(&self, name: &str) -> usize {
        let mut nodes = self.topology.nodes.iter();
        nodes.position(|node| node.name() == name).unwrap()
    }

    /// Runs a shell script in a Pod.
    pub fn exec(&self, pod: &Value, line: &str) -> Result<String> {
        let output = self.worker_of(pod).exec(pod, &["sh", "-c", line])?;
        ensure!(output.status.success(), "{line}: {output:?}");
        Ok(output.stdout)
    }

    /// Fetches from a web server from within a Pod.
    pub fn fetch(&self, pod: &Value, ip: &str, port: u16) -> Result<WebReply> {
        WebReply::parse(&self.exec(pod, &wget(ip, port))?)
    }

    /// Waits until every Pod reaches every Pod, itself included, by both families, under its own address.
    pub fn await_all_to_all(&self, pods: &[Value]) {
        for from in pods {
            let own = pod_ips(from);
            assert_eq!(own.len(), 2, "{own:?}");
            for to in pods {
                for ip in pod_ips(to) {
                    let what = format!("{} reaches {} at {ip}", object_name(from), object_name(to));
                    let fetch = || self.fetch(from, &ip, 8080);
                    self.await_reply(&what, fetch, |reply| {
                        own.contains(&reply.source.to_string()) && reply.pod == object_name(to)
                    });
                }
            }
        }
    }

    pub fn await_reply(
        &self,
        what: &str,
        fetch: impl Fn() -> Result<WebReply>,
        is_right: impl Fn(&WebReply) -> bool,
    ) -> WebReply {
        let mut last = String::new();
        let right = || {
            let reply = fetch();
            last = format!("{reply:?}");
            reply.ok().filter(|reply| is_right(reply))
        };
        let found = eventually(JOIN_TIMEOUT, what, right);
        found.unwrap_or_else(|error| panic!("{error:#}: {last}\n{}", self.diagnostics()))
    }

    /// Asserts that an uninstall left no files on a node and nothing on its Node object.
    pub fn assert_clean(&self, node: &Node) {
        let files = "ls -d /opt/cni/bin/headcni* /etc/cni/net.d/*headcni* /var/lib/headcni \
                     /var/lib/cni/headcni /run/headcni 2>/dev/null || true";
        let found = node.run(["sh", "-c", files]).unwrap().stdout;
        assert_eq!(found, "", "{}: files", node.name());
        let object = self.get(&format!("/api/v1/nodes/{}", node.name()));
        let annotations = object["metadata"]["annotations"].to_string();
        assert!(!annotations.contains("headcni.io/"), "{annotations}");
        let conditions = object["status"]["conditions"].to_string();
        assert!(!conditions.contains("NetworkUnavailable"), "{conditions}");
    }

    /// Logs and state of daemons and nodes, for the message of a failed test.
    pub fn diagnostics(&self) -> String {
        let mut text = String::new();
        let daemons = "/api/v1/namespaces/kube-system/pods";
        for pod in self.get(daemons)["items"].as_array().unwrap() {
            let name = pod["metadata"]["name"].as_str().unwrap();
            let _ = writeln!(text, "--- {name}: {}", pod["status"]["phase"]);
            let containers = pod["spec"]["initContainers"].as_array().into_iter();
            let containers = containers.chain(pod["spec"]["containers"].as_array());
            for container in containers.flatten() {
                let container = container["name"].as_str().unwrap();
                let path = format!("{daemons}/{name}/log?container={container}&tailLines=60");
                let log = self.plane.admin().ask("GET", &path);
                let log = log.map_or_else(|error| format!("{error:#}"), |log| log.body);
                let _ = writeln!(text, "{container}:\n{log}");
            }
        }
        for node in &self.topology.nodes {
            let script = "busybox wget -q -O - http://127.0.0.1:9844/ready
                        cat /etc/cni/net.d/*headcni*
                        nft list ruleset
                        true";
            let found = node.run(["sh", "-c", script]).map(|output| output.stdout);
            let _ = writeln!(text, "--- {}: {}", node.name(), found.unwrap_or_default());
        }
        text
    }
}

/// Fetches from a web server from a node, or from a pod without a Pod object.
pub fn fetch_from(place: &impl Netns, ip: &str, port: u16) -> Result<WebReply> {
    let line = format!(
        "PATH=$PATH:/usr/sbin; {}",
        wget(ip, port).replace("wget", "busybox wget")
    );
    WebReply::parse(&place.run(["sh", "-c", &line])?.stdout)
}

fn wget(ip: &str, port: u16) -> String {
    let ip = if ip.contains(':') {
        format!("[{ip}]")
    } else {
        ip.to_owned()
    };
    format!("timeout 5 wget -q -O - http://{ip}:{port}/cgi-bin/who")
}

/// What a web server of [`web_spec`] replies.
#[derive(Debug)]
pub struct WebReply {
    /// The client's address as the server saw it.
    pub source: IpAddr,
    /// The Pod that replied.
    pub pod: String,
}

impl WebReply {
    fn parse(text: &str) -> Result<Self> {
        let (source, pod) = text.trim().split_once(' ').context("two words")?;
        let source = source.trim_start_matches('[').trim_end_matches(']');
        let source: IpAddr = source.parse().with_context(|| format!("parse {source}"))?;
        Ok(Self {
            source: source.to_canonical(),
            pod: pod.to_owned(),
        })
    }
}

/// A Pod spec with a web server that replies with the client's address and its own name.
pub fn web_spec() -> Value {
    let serve = r#"mkdir -p /www/cgi-bin
printf '#!/bin/sh\necho\necho "$REMOTE_ADDR $(hostname)"\n' >/www/cgi-bin/who
chmod +x /www/cgi-bin/who
exec httpd -f -p 8080 -h /www"#;
    let probe = json!({ "httpGet": { "path": "/cgi-bin/who", "port": 8080 }, "periodSeconds": 1 });
    json!({
        "terminationGracePeriodSeconds": 0,
        "containers": [{
            "name": "web",
            "image": kubernetes::IMAGE,
            "command": ["sh", "-c", serve],
            "readinessProbe": probe,
            "livenessProbe": { "tcpSocket": { "port": 8080 }, "periodSeconds": 10, "failureThreshold": 6 },
        }],
    })
}

pub fn web_spec_on(node: &str) -> Value {
    let mut spec = web_spec();
    spec["nodeName"] = json!(node);
    spec
}

pub fn pod_object(name: &str, app: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": "default", "labels": { "app": app } },
        "spec": spec,
    })
}

/// A Service for the web servers with the label `app`.
pub fn service_object(name: &str, app: &str, more: &Value) -> Value {
    let mut spec = json!({
        "selector": { "app": app },
        "ipFamilyPolicy": "PreferDualStack",
        "ports": [{ "port": 80, "targetPort": 8080 }],
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": name, "namespace": "default" },
        "spec": spec,
    })
}

pub fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

pub fn pod_ips(pod: &Value) -> Vec<String> {
    let ips = pod["status"]["podIPs"].as_array().into_iter().flatten();
    ips.map(|ip| ip["ip"].as_str().unwrap().to_owned())
        .collect()
}

pub fn object_name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}
