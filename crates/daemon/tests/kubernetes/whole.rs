//! A whole cluster: control plane, Headscale, workers, and headcni as its chart installs it.

use std::fmt::Write;
use std::fs;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lab::kubernetes::{ControlPlane, Helm, Image, SERVICE_NETWORKS, Worker};
use lab::{
    Grounds, Headscale, JOINED, Netns, Node, POD_NETWORKS, TAG, eventually, eventually_and_gently,
    open_policy, tools,
};
use serde_json::{Value, json};

/// How long Pods may take on a busy machine, all of a test's at once.
pub(crate) const SOON: Duration = Duration::from_mins(3);

/// The image of the chart's own version, and the same as a later one.
pub(crate) const IMAGE: &str = "localhost/headcni:0.1.0";
pub(crate) const NEXT_IMAGE: &str = "localhost/headcni:0.1.1";

pub(crate) struct Whole<'a> {
    pub(crate) grounds: &'a Grounds,
    // They end in this order.
    pub(crate) workers: Vec<Worker<'a>>,
    pub(crate) helm: Helm<'a>,
    pub(crate) plane: ControlPlane<'a>,
    pub(crate) headscale: Headscale<'a>,
}

impl<'a> Whole<'a> {
    /// All but headcni: no node is Ready.
    pub(crate) fn new(grounds: &'a Grounds) -> Self {
        let start = |node, plane: &_| Worker::start(node, plane).unwrap();
        Self::of(grounds, start_headscale(grounds), start)
    }

    /// The same with a Headscale that is there already, and kubelets as somebody else starts them.
    pub(crate) fn of(
        grounds: &'a Grounds,
        headscale: Headscale<'a>,
        start: impl Fn(&'a Node, &ControlPlane<'a>) -> Worker<'a>,
    ) -> Self {
        let mut plane = ControlPlane::start(&grounds.server).unwrap();
        plane.start_scheduler().unwrap();
        let images = [IMAGE, NEXT_IMAGE].map(|name| Image::headcni(name).unwrap());
        let workers = grounds.nodes.iter().map(|node| {
            let worker = start(node, &plane);
            for image in &images {
                worker.take(image).unwrap();
            }
            // Every container runtime needs this one, and brings it along.
            let copy = format!(
                "rm -rf /opt/cni; mkdir -p /opt/cni/bin; cp {}/loopback /opt/cni/bin/",
                tools::cni_plugin_dir().display()
            );
            node.run(["sh", "-ec", &copy]).unwrap();
            worker
        });
        let whole = Self {
            grounds,
            workers: workers.collect(),
            helm: Helm::new(&grounds.server, &plane).unwrap(),
            plane,
            headscale,
        };
        whole.give_keys();
        whole
    }

    /// As `kubectl create secret` and `kubectl create configmap` would.
    fn give_keys(&self) {
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

    /// What docs/install.md says to type, with this cluster's addresses.
    pub(crate) fn install(&self) {
        self.helm(&["install"], &[]);
    }

    /// `install` or `upgrade`, with more words.
    pub(crate) fn helm(&self, verb: &[&str], more: &[&str]) -> String {
        let list = |nets: &[String]| format!("{{{}}}", nets.join(","));
        let base = list(&POD_NETWORKS.map(|net| net.to_string()));
        let service = list(&SERVICE_NETWORKS.map(str::to_owned));
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
            panic!("{error:#}\n{}", self.told());
        })
    }

    pub(crate) fn apply(&self, object: &Value) {
        self.plane.admin().apply(object).unwrap();
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        self.plane.admin().get(path).unwrap()
    }

    /// The Pods of the namespace `default` that have a label.
    pub(crate) fn pods(&self, app: &str) -> Vec<Value> {
        let path = format!("/api/v1/namespaces/default/pods?labelSelector=app%3D{app}");
        self.get(&path)["items"].as_array().unwrap().clone()
    }

    /// Waits until so many Pods with a label are Ready, and no other is there.
    pub(crate) fn await_pods(&self, app: &str, count: usize) -> Vec<Value> {
        let what = format!("{count} Pods of {app} are Ready");
        let ready = || {
            let pods = self.pods(app);
            (pods.len() == count && pods.iter().all(is_ready)).then_some(pods)
        };
        eventually_and_gently(SOON, &what, ready).unwrap_or_else(|error| {
            let states = self.pods(app).into_iter().map(|pod| pod["status"].clone());
            let states: Vec<_> = states.collect();
            panic!("{error:#}: {:#}\n{}", json!(states), self.told())
        })
    }

    pub(crate) fn await_nodes(&self) {
        for node in &self.grounds.nodes {
            self.await_node(node.name());
        }
    }

    pub(crate) fn await_node(&self, name: &str) {
        eventually_and_gently(SOON, &format!("{name} is Ready"), || {
            self.is_node_ready(name).then_some(())
        })
        .unwrap_or_else(|error| panic!("{error:#}\n{}", self.told()));
    }

    pub(crate) fn is_node_ready(&self, name: &str) -> bool {
        let path = format!("/api/v1/nodes/{name}");
        self.plane
            .admin()
            .get(&path)
            .is_ok_and(|node| is_ready(&node))
    }

    /// The worker that a Pod runs on.
    pub(crate) fn worker_of(&self, pod: &Value) -> &Worker<'a> {
        let name = pod["spec"]["nodeName"].as_str().unwrap();
        let node = self.number_of(name);
        &self.workers[node]
    }

    pub(crate) fn number_of(&self, name: &str) -> usize {
        let mut nodes = self.grounds.nodes.iter();
        nodes.position(|node| node.name() == name).unwrap()
    }

    /// Runs a line of shell in a Pod.
    pub(crate) fn exec(&self, pod: &Value, line: &str) -> Result<String> {
        let output = self.worker_of(pod).exec(pod, &["sh", "-c", line])?;
        ensure!(output.status.success(), "{line}: {output:?}");
        Ok(output.stdout)
    }

    /// Asks a web server from within a Pod.
    pub(crate) fn ask(&self, pod: &Value, ip: &str, port: u16) -> Result<Answer> {
        Answer::parse(&self.exec(pod, &question(ip, port))?)
    }

    /// Every Pod reaches every one, itself too, under its own address, by both families.
    pub(crate) fn await_all_to_all(&self, pods: &[Value]) {
        for from in pods {
            let own = ips(from);
            assert_eq!(own.len(), 2, "{own:?}");
            for to in pods {
                for ip in ips(to) {
                    let what = format!("{} reaches {} at {ip}", name(from), name(to));
                    let ask = || self.ask(from, &ip, 8080);
                    self.await_answer(&what, ask, |answer| {
                        own.contains(&answer.seen.to_string()) && answer.by == name(to)
                    });
                }
            }
        }
    }

    /// Waits until an answer is as it should be.
    pub(crate) fn await_answer(
        &self,
        what: &str,
        ask: impl Fn() -> Result<Answer>,
        is_right: impl Fn(&Answer) -> bool,
    ) -> Answer {
        let mut last = String::new();
        let right = || {
            let answer = ask();
            last = format!("{answer:?}");
            answer.ok().filter(|answer| is_right(answer))
        };
        let found = eventually(JOINED, what, right);
        found.unwrap_or_else(|error| panic!("{error:#}: {last}\n{}", self.told()))
    }

    /// headcni was uninstalled: neither files of it are on a node, nor words on its object.
    pub(crate) fn check_is_clean(&self, node: &Node) {
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

    /// What a person would look at if something is wrong.
    pub(crate) fn told(&self) -> String {
        let mut said = String::new();
        let daemons = "/api/v1/namespaces/kube-system/pods";
        for pod in self.get(daemons)["items"].as_array().unwrap() {
            let name = pod["metadata"]["name"].as_str().unwrap();
            let _ = writeln!(said, "--- {name}: {}", pod["status"]["phase"]);
            let containers = pod["spec"]["initContainers"].as_array().into_iter();
            let containers = containers.chain(pod["spec"]["containers"].as_array());
            for container in containers.flatten() {
                let container = container["name"].as_str().unwrap();
                let path = format!("{daemons}/{name}/log?container={container}&tailLines=60");
                let log = self.plane.admin().ask("GET", &path);
                let log = log.map_or_else(|error| format!("{error:#}"), |log| log.body);
                let _ = writeln!(said, "{container}:\n{log}");
            }
        }
        for node in &self.grounds.nodes {
            let look = "busybox wget -q -O - http://127.0.0.1:9844/ready
                        cat /etc/cni/net.d/*headcni*
                        nft list ruleset
                        true";
            let found = node.run(["sh", "-c", look]).map(|output| output.stdout);
            let _ = writeln!(said, "--- {}: {}", node.name(), found.unwrap_or_default());
        }
        said
    }
}

/// A Headscale that lets all members talk.
pub(crate) fn start_headscale(grounds: &Grounds) -> Headscale<'_> {
    let address = IpAddr::V4(grounds.server_port.v4);
    let headscale = Headscale::start(&grounds.server, &tools::HEADSCALE, address).unwrap();
    let policy = open_policy(TAG, &POD_NETWORKS);
    headscale.set_policy(&policy).unwrap();
    headscale
}

/// Asks a web server from a node, or from a pod that is no Pod.
pub(crate) fn ask_from(place: &impl Netns, ip: &str, port: u16) -> Result<Answer> {
    let line = format!(
        "PATH=$PATH:/usr/sbin; {}",
        question(ip, port).replace("wget", "busybox wget")
    );
    Answer::parse(&place.run(["sh", "-c", &line])?.stdout)
}

fn question(ip: &str, port: u16) -> String {
    let ip = if ip.contains(':') {
        format!("[{ip}]")
    } else {
        ip.to_owned()
    };
    format!("timeout 5 wget -q -O - http://{ip}:{port}/cgi-bin/who")
}

/// What a web server says.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Who asked, as far as it can see.
    pub(crate) seen: IpAddr,
    /// The Pod that answered.
    pub(crate) by: String,
}

impl Answer {
    fn parse(text: &str) -> Result<Self> {
        let (seen, by) = text.trim().split_once(' ').context("two words")?;
        let seen = seen.trim_start_matches('[').trim_end_matches(']');
        let seen: IpAddr = seen.parse().with_context(|| format!("read {seen}"))?;
        Ok(Self {
            seen: seen.to_canonical(),
            by: by.to_owned(),
        })
    }
}

/// A Pod's specification with a web server that says who asks, and who answers.
pub(crate) fn web() -> Value {
    let serve = r#"mkdir -p /www/cgi-bin
printf '#!/bin/sh\necho\necho "$REMOTE_ADDR $(hostname)"\n' >/www/cgi-bin/who
chmod +x /www/cgi-bin/who
exec httpd -f -p 8080 -h /www"#;
    let probe = json!({ "httpGet": { "path": "/cgi-bin/who", "port": 8080 }, "periodSeconds": 1 });
    json!({
        "terminationGracePeriodSeconds": 0,
        "containers": [{
            "name": "web",
            "image": lab::kubernetes::IMAGE,
            "command": ["sh", "-c", serve],
            "readinessProbe": probe,
            "livenessProbe": { "tcpSocket": { "port": 8080 }, "periodSeconds": 10, "failureThreshold": 6 },
        }],
    })
}

/// The same on this node.
pub(crate) fn web_on(node: &str) -> Value {
    let mut spec = web();
    spec["nodeName"] = json!(node);
    spec
}

pub(crate) fn pod(name: &str, app: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": "default", "labels": { "app": app } },
        "spec": spec,
    })
}

/// A Service for the web servers with a label.
pub(crate) fn service(name: &str, app: &str, more: &Value) -> Value {
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

pub(crate) fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// The addresses of a Pod, as the API has them.
pub(crate) fn ips(pod: &Value) -> Vec<String> {
    let ips = pod["status"]["podIPs"].as_array().into_iter().flatten();
    ips.map(|ip| ip["ip"].as_str().unwrap().to_owned())
        .collect()
}

pub(crate) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}
