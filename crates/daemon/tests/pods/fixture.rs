//! A node with pods, and an agent process that collects orphans.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use lab::tools::{cni_plugin_dir, headcni};
use lab::{Call, Ignore, Netns, Node, Outcome, Pod, Running, Snapshot};
use serde_json::{Value, json};

use crate::agent::{self, GRACE, INTERVAL, Report, Script, Step};

pub(crate) const NETWORK: &str = "net";
pub(crate) const STATE_DIR: &str = "/var/lib/cni/headcni/net";
pub(crate) const LEASE_DIR: &str = "/var/lib/cni/networks/headcni/net";
pub(crate) const HOST_LOCAL_DIR: &str = "/var/lib/cni/networks/net";
const BIN_DIR: &str = "/opt/cni/bin";
const PLUGIN: &str = "/opt/cni/bin/headcni";
const DIRS: &[&str] = &["/var/lib/cni", "/etc/cni", "/run/headcni"];

/// A native network.
pub(crate) fn native() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": NETWORK, "type": "headcni",
        "ipam": { "type": "headcni-ipam",
            "ranges": [[{ "subnet": "10.9.0.0/24" }], [{ "subnet": "fd00:9::/64" }]] },
    })
}

/// With a hostPort.
pub(crate) fn with_port(port: u16) -> Value {
    let mut conf = native();
    conf["runtimeConfig"] = json!({ "portMappings": [
        { "hostPort": port, "containerPort": 80, "protocol": "tcp" },
    ] });
    conf
}

/// Bridge mode.
pub(crate) fn bridge() -> Value {
    json!({
        "cniVersion": "1.0.0", "name": NETWORK, "type": "headcni",
        "delegate": { "type": "bridge", "bridge": "headcni0", "ipMasq": false, "mtu": 1280,
            "isGateway": true,
            "ipam": { "type": "host-local", "subnet": "10.9.0.0/24" } },
    })
}

/// Observations that suffice to collect a current orphan.
pub(crate) fn observations() -> Vec<Step> {
    vec![Step::pass(0), Step::pass(GRACE + 1)]
}

/// Observations over a day.
pub(crate) fn daily_observations() -> Vec<Step> {
    let times = [0, INTERVAL, GRACE, GRACE + INTERVAL, 3600, 86400];
    times.map(Step::pass).into()
}

pub(crate) struct PodsNode {
    pub(crate) node: Node,
    is_bridge: bool,
}

impl PodsNode {
    /// A node after a first ADD and DEL, so that shared state exists.
    pub(crate) fn used(conf: &Value) -> Self {
        let node = Node::new("n1").unwrap();
        node.run(["mkdir", "-p", BIN_DIR]).unwrap();
        let plugins = ["bridge", "host-local"].map(|name| cni_plugin_dir().join(name));
        for program in plugins.iter().chain([&headcni()]) {
            let program = program.display().to_string();
            node.run(["ln", "-s", &program, BIN_DIR]).unwrap();
        }
        let fixture = Self {
            node,
            is_bridge: conf.get("delegate").is_some(),
        };
        let pod = fixture.pod("first");
        fixture.call_ok("ADD", conf, &pod);
        fixture.call_ok("DEL", conf, &pod);
        pod.delete().unwrap();
        fixture
    }

    pub(crate) fn pod(&self, name: &str) -> Pod {
        self.node.pod(name).unwrap()
    }

    /// A pod with `eth0`, and its first address.
    #[track_caller]
    pub(crate) fn attached(&self, name: &str, conf: &Value) -> (Pod, String) {
        let pod = self.pod(name);
        let result = self.call_ok("ADD", conf, &pod).ok_json().unwrap();
        let address = result["ips"][0]["address"].as_str().unwrap();
        let address = address.split('/').next().unwrap().to_owned();
        (pod, address)
    }

    #[track_caller]
    pub(crate) fn call_ok(&self, verb: &str, conf: &Value, pod: &Pod) -> Outcome {
        let outcome = self.run(&call(verb, conf).pod(pod));
        if let Err(error) = outcome.ok() {
            panic!("{verb}: {error}");
        }
        outcome
    }

    pub(crate) fn run(&self, call: &Call) -> Outcome {
        call.run(&self.node, PLUGIN).unwrap()
    }

    pub(crate) fn spawn(&self, call: &Call) -> Running {
        call.spawn(&self.node, PLUGIN).unwrap()
    }

    /// Everything that could remain, without caches and the last reserved address.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let ours = [
            "last_reserved_ip.0",
            "last_reserved_ip.1",
            "lock",
            ".headcni/used.10.9.0.0-24",
            ".headcni/used.fd00:9::-108",
            ".headcni/new.0",
            ".headcni/new.1",
            ".headcni/pending",
        ];
        let ignored = ours.iter().fold(Ignore::new(), |ignored, name| {
            ignored.path(&format!("{LEASE_DIR}/{name}"))
        });
        let ignored = ignored.host_local(HOST_LOCAL_DIR).spare_records(STATE_DIR);
        self.node.snapshot(DIRS).unwrap().ignoring(ignored)
    }

    /// Runs these steps in a new agent; returns a report per step.
    #[track_caller]
    pub(crate) fn agent(&self, steps: Vec<Step>) -> Vec<Report> {
        self.agent_under(&[], steps)
    }

    /// Under a program with its arguments.
    #[track_caller]
    pub(crate) fn agent_under(&self, under: &[&str], steps: Vec<Step>) -> Vec<Report> {
        let script = Script {
            network: NETWORK.to_owned(),
            is_bridge: self.is_bridge,
            steps,
        };
        let line: Vec<String> = under
            .iter()
            .map(ToString::to_string)
            .chain(agent::line())
            .collect();
        let mut command = self.node.command(&line[0]);
        command.args(&line[1..]);
        agent::instruct(&mut command, &script);
        let output = lab::run(&mut command).unwrap();
        let reports = agent::reports(&output.stdout);
        assert_eq!(reports.len(), script.steps.len(), "{output:?}");
        reports
    }

    /// Runs these steps; returns everything that was collected.
    #[track_caller]
    pub(crate) fn collected(&self, steps: Vec<Step>) -> Vec<(String, String, String)> {
        let reports = self.agent(steps);
        for report in &reports {
            assert_eq!(report.troubles, [""; 0]);
        }
        let all = reports.into_iter().flat_map(|report| report.collected);
        all.collect()
    }

    /// Asserts that many observations collect and change nothing.
    #[track_caller]
    pub(crate) fn assert_nothing_collected(&self) {
        let before = self.snapshot();
        assert_eq!(self.collected(daily_observations()), []);
        self.node.assert_unchanged(&before);
    }

    /// The record of `eth0` of a container.
    pub(crate) fn record(&self, container: &str) -> Option<Value> {
        let path = format!("{STATE_DIR}/{container}@eth0.json");
        let text = self.node.read(path).ok()?;
        Some(serde_json::from_str(text.lines().last()?).unwrap())
    }

    pub(crate) fn has_record(&self, container: &str) -> bool {
        self.node.has(format!("{STATE_DIR}/{container}@eth0.json"))
    }

    /// Installs a shell script as a plugin. `$verb` is the verb.
    pub(crate) fn script(&self, name: &str, body: &str) {
        let path = format!("{BIN_DIR}/{name}");
        let text = format!("#!/bin/sh\nverb=$CNI_COMMAND\n{body}\n");
        self.node.write(&path, text).unwrap();
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(self.node.path(path), mode).unwrap();
    }

    #[track_caller]
    pub(crate) fn shell(&self, text: &str) {
        self.node.run(["sh", "-ec", text]).unwrap();
    }
}

pub(crate) fn call(verb: &str, conf: &Value) -> Call {
    Call::new(verb).path(BIN_DIR).conf(conf)
}

pub(crate) fn orphan(kind: &str, container: &str, cause: &str) -> (String, String, String) {
    (kind.to_owned(), container.to_owned(), cause.to_owned())
}
