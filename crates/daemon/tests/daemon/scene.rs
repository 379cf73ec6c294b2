//! A node on which the real daemon runs, with real plugin calls beside it.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use api::client::Client;
use lab::{Call, Netns, Node, Output, Pod, Response, Running, Signal, eventually, http_get, tools};
use serde_json::{Value, json};

/// How long the daemon may take for anything.
pub(crate) const SOON: Duration = Duration::from_secs(10);
/// What is repaired must be so within a second. A busy machine gets some more.
pub(crate) const REPAIRED: Duration = Duration::from_secs(5);

pub(crate) const CONFLIST: &str = "/etc/cni/net.d/10-headcni.conflist";
const CONFIG: &str = "/etc/headcni/daemon.yaml";
const ADMIN: &str = "127.0.0.1:9844";

/// A node.
pub(crate) struct Scene {
    pub(crate) node: Node,
}

impl Scene {
    /// A node whose pods get 10.244.1.0/24.
    pub(crate) fn new() -> Self {
        Self::with("network: {podCIDR: {nodeLocal: 10.244.1.0/24, base: 10.244.0.0/16}}")
    }

    /// A node with this configuration.
    pub(crate) fn with(yaml: &str) -> Self {
        let scene = Self {
            node: Node::new("node-a").unwrap(),
        };
        // The host may have some of its own.
        scene.sh("rm -rf /etc/cni /opt/cni /var/lib/cni /var/lib/headcni; mkdir -p /etc/cni/net.d /opt/cni/bin");
        for dir in [tools::headcni_bin_dir(), tools::cni_plugin_dir()] {
            scene.sh(&format!("ln -s {}/* /opt/cni/bin/", dir.display()));
        }
        scene.configure(yaml);
        scene
    }

    pub(crate) fn configure(&self, yaml: &str) {
        self.sh(&format!(
            "mkdir -p /etc/headcni; cat > {CONFIG} <<'END'\n{yaml}\nEND"
        ));
    }

    /// Runs a line of shell on the node.
    #[track_caller]
    pub(crate) fn sh(&self, line: &str) -> String {
        self.node.run(["sh", "-ec", line]).unwrap().stdout
    }

    /// The path by which this process sees a file of the node.
    pub(crate) fn file(&self, path: &str) -> PathBuf {
        format!("/proc/{}/root{path}", self.node.holder_pid()).into()
    }

    pub(crate) fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.file(path)).ok()
    }

    /// Runs the daemon's program with these arguments to its end.
    pub(crate) fn command(&self, args: &[&str]) -> Output {
        let program = tools::headcni_daemon();
        let line = [program.to_str().unwrap()]
            .into_iter()
            .chain(args.iter().copied());
        self.node.attempt(line).unwrap()
    }

    /// Starts the daemon, and does not wait for it.
    pub(crate) fn launch(&self) -> Daemon<'_> {
        self.launch_with(&[])
    }

    /// As [`Scene::launch`], with variables.
    pub(crate) fn launch_with(&self, variables: &[(&str, &str)]) -> Daemon<'_> {
        let mut command = self.node.command("env");
        command.args(
            variables
                .iter()
                .map(|(name, value)| format!("{name}={value}")),
        );
        command.arg(tools::headcni_daemon()).arg("run");
        Daemon {
            scene: self,
            running: Running::spawn(&mut command, b"").unwrap(),
        }
    }

    /// Starts the daemon, and waits until the node is ready.
    pub(crate) fn start(&self) -> Daemon<'_> {
        let daemon = self.launch();
        daemon.await_ready();
        daemon
    }

    /// What a runtime gives the plugin, according to the configuration that is there.
    pub(crate) fn conf(&self) -> Value {
        let list: Value = serde_json::from_str(&self.read(CONFLIST).unwrap()).unwrap();
        let mut conf = list["plugins"][0].clone();
        conf["cniVersion"] = json!("1.1.0");
        conf["name"] = list["name"].clone();
        conf
    }

    pub(crate) fn add(&self, pod: &Pod<'_>) -> Value {
        let call = self.call("ADD").pod(pod).conf(&self.conf());
        call.run(&self.node, tools::headcni())
            .unwrap()
            .ok_json()
            .unwrap()
    }

    pub(crate) fn del(&self, pod: &Pod<'_>) {
        let call = self.call("DEL").pod(pod).conf(&self.conf());
        call.run(&self.node, tools::headcni())
            .unwrap()
            .ok()
            .unwrap();
    }

    pub(crate) fn call(&self, verb: &str) -> Call {
        Call::new(verb).path("/opt/cni/bin")
    }

    /// The files with leases.
    pub(crate) fn leases(&self) -> Vec<String> {
        let listed = self.sh("ls /var/lib/cni/networks/headcni/headcni 2>/dev/null || ls /var/lib/cni/networks/headcni 2>/dev/null || true");
        let names = listed
            .lines()
            .filter(|name| name.parse::<std::net::IpAddr>().is_ok());
        names.map(str::to_owned).collect()
    }

    /// The plugin's records.
    pub(crate) fn records(&self) -> Vec<String> {
        let listed = self.sh("ls /var/lib/cni/headcni/headcni 2>/dev/null || true");
        let is_record = |name: &&str| !name.starts_with("new.");
        let records = listed.lines().filter(is_record);
        records.map(str::to_owned).collect()
    }

    /// The links of pods.
    pub(crate) fn links(&self) -> Vec<String> {
        let links = self.node.links().unwrap();
        let is_ours = |name: &String| name.starts_with("hc");
        links.into_iter().filter(is_ours).collect()
    }

    #[track_caller]
    pub(crate) fn eventually<T>(&self, what: &str, probe: impl FnMut() -> Option<T>) -> T {
        eventually(SOON, what, probe).unwrap()
    }
}

/// The daemon while it runs. Dropped, it is killed.
pub(crate) struct Daemon<'a> {
    scene: &'a Scene,
    pub(crate) running: Running,
}

impl Daemon<'_> {
    /// Asks the admin server; nothing if it doesn't answer.
    pub(crate) fn get(&self, path: &str) -> Option<Response> {
        let address: SocketAddr = ADMIN.parse().unwrap();
        http_get(&self.scene.node, address, path).ok()
    }

    /// `/ready` as JSON.
    pub(crate) fn ready(&self) -> Option<Value> {
        serde_json::from_str(&self.get("/ready")?.body).ok()
    }

    /// A condition, as soon as `/ready` has it.
    pub(crate) fn condition(&self, name: &str) -> Option<Value> {
        let ready = self.ready()?;
        let conditions = ready["conditions"].as_array()?.iter();
        conditions
            .into_iter()
            .find(|one| one["name"] == name)
            .cloned()
    }

    /// Waits until a condition holds or doesn't, and returns what it says.
    #[track_caller]
    pub(crate) fn await_condition(&self, name: &str, status: &str) -> String {
        let what = format!("{name} is {status}");
        let found = eventually(SOON, &what, || {
            let condition = self.condition(name)?;
            let message = condition["message"].as_str()?.to_owned();
            (condition["status"] == status && message != "not looked at yet").then_some(message)
        });
        found.unwrap_or_else(|error| panic!("{error}: {:#?}", self.ready()))
    }

    #[track_caller]
    pub(crate) fn await_ready(&self) {
        let is_ready = || (self.get("/ready")?.status == 200).then_some(());
        if let Err(error) = eventually(SOON, "the node is ready", is_ready) {
            panic!("{error}: {:#?}", self.ready());
        }
    }

    /// The value of a series of `/metrics`, labels included in its name.
    pub(crate) fn metric(&self, series: &str) -> Option<f64> {
        let body = self.get("/metrics")?.body;
        let line = body.lines().find_map(|line| line.strip_prefix(series))?;
        line.trim().parse().ok()
    }

    #[track_caller]
    pub(crate) fn await_metric(&self, series: &str, value: f64) {
        let is_so = || {
            (self.metric(series)? - value)
                .abs()
                .lt(&0.001)
                .then_some(())
        };
        if let Err(error) = eventually(SOON, &format!("{series} is {value}"), is_so) {
            panic!("{error}, but {:?}", self.metric(series));
        }
    }

    /// A client of its API.
    pub(crate) fn client(&self) -> Client {
        let path = self.scene.file("/run/headcni/daemon.sock");
        Client::new(path, SOON)
    }

    /// Ends it as systemd does; returns what it logged.
    pub(crate) fn stop(self) -> Output {
        self.running.signal(Signal::TERM);
        self.running.wait(Duration::from_secs(5)).unwrap()
    }

    /// Ends it by `kill -9`; returns what it logged.
    pub(crate) fn kill(self) -> Output {
        self.running.kill();
        self.running.wait(SOON).unwrap()
    }

    pub(crate) fn reload(&self) {
        self.running.signal(Signal::HUP);
    }
}
