//! A server, and nodes with a tailscaled each.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lab::tools::{HEADSCALE, TAILSCALE};
use lab::{Headscale, Netns, Node, eventually};
use rustix::process::{Pid, Signal, WaitOptions};
use serde_json::{Value, json};
use tailscaled::localapi::{AuthKey, LocalApi, PrefsEdit, Start, StartPrefs};
use tailscaled::supervisor::{Supervisor, Tailscaled};
use tempfile::TempDir;

/// For what takes a second or two when nothing else runs.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 99, 1, 1);
pub(crate) const TAG: &str = "tag:k8s-node";

/// Three nodes, each with a wire to each.
pub(crate) struct World {
    pub(crate) server: Node,
    pub(crate) nodes: [Node; 2],
}

impl World {
    pub(crate) fn new() -> Self {
        let [server, first, second] = ["hs", "n1", "n2"].map(|name| Node::new(name).unwrap());
        server
            .wire("hs1", "10.99.1.1/24", &first, "10.99.1.2/24")
            .unwrap();
        server
            .wire("hs2", "10.99.2.1/24", &second, "10.99.2.2/24")
            .unwrap();
        first
            .wire("direct", "10.99.3.1/24", &second, "10.99.3.2/24")
            .unwrap();
        // So that whatever is sent to strangers is sent, and can be seen.
        for (node, gateway) in [(&first, "10.99.1.1"), (&second, "10.99.2.1")] {
            node.run(["ip", "route", "add", "default", "via", gateway])
                .unwrap();
            node.sysctl("net.ipv4.ip_forward", "1").unwrap();
        }
        Self {
            server,
            nodes: [first, second],
        }
    }

    pub(crate) fn headscale(&self) -> Headscale {
        Headscale::start(&self.server, &HEADSCALE, SERVER.into()).unwrap()
    }
}

/// Everybody's own prefix is approved, and everybody may reach everything.
pub(crate) fn open_policy() -> Value {
    json!({
        "tagOwners": { TAG: [] },
        "autoApprovers": { "routes": { "10.244.0.0/16": [TAG] } },
        "acls": [{ "action": "accept", "src": [TAG, "10.244.0.0/16"],
            "dst": [format!("{TAG}:*"), "10.244.0.0/16:*"] }],
    })
}

/// A key, and what the server knows it as.
pub(crate) fn new_key(server: &Headscale) -> (String, String) {
    let words = ["preauthkeys", "create", "--tags", TAG, "-o", "json"];
    let made = server.cli(words).unwrap();
    let key = made["key"].as_str().unwrap_or_else(|| panic!("{made}"));
    (key.to_owned(), made["id"].to_string().replace('"', ""))
}

pub(crate) fn start(server: &Headscale, key: &str, edit: PrefsEdit) -> Start {
    let edit = PrefsEdit {
        control_url: Some(server.url()),
        ..edit
    };
    Start {
        auth_key: Some(AuthKey::new(key)),
        prefs: StartPrefs::fresh(&edit),
    }
}

/// How a member of ours is set up.
pub(crate) fn usual(name: &str, route: &str) -> PrefsEdit {
    PrefsEdit {
        hostname: Some(name.to_owned()),
        advertise_routes: Some(vec![route.parse().unwrap()]),
        route_all: Some(true),
        no_snat: Some(true),
        no_stateful_filtering: Some(Some(true)),
        ..PrefsEdit::default()
    }
}

/// Proxies that a tailscaled would take from us. Whoever runs tests may need one, and a node has no way
/// to it.
const PROXIES: [&str; 6] = [
    "HTTPS_PROXY",
    "https_proxy",
    "HTTP_PROXY",
    "http_proxy",
    "ALL_PROXY",
    "all_proxy",
];

/// A tailscaled with these files in a network namespace, and without a proxy: an empty one is none.
pub(crate) fn settings(
    state_dir: impl Into<PathBuf>,
    socket: impl Into<PathBuf>,
    netns: impl Into<PathBuf>,
) -> Tailscaled {
    let mut settings = Tailscaled::new(TAILSCALE.program("tailscaled"), state_dir, socket);
    settings.netns = Some(netns.into());
    settings.environment = PROXIES.map(|name| (name.to_owned(), String::new())).into();
    settings
}

/// The files of a tailscaled in a node. Whatever runs with them ends with this.
pub(crate) struct Place {
    files: TempDir,
    pub(crate) settings: Tailscaled,
}

impl Place {
    pub(crate) fn new(node: &Node, server: Option<&Headscale>) -> Self {
        let files = TempDir::new().unwrap();
        let [state_dir, socket] = ["state", "ts.sock"].map(|name| files.path().join(name));
        let mut settings = settings(state_dir, socket, node.netns_file());
        settings.ca_file = server.map(|server| server.ca_file().to_owned());
        Self { files, settings }
    }

    pub(crate) fn supervisor(&self) -> Supervisor {
        Supervisor::new(self.settings.clone())
    }

    pub(crate) fn api(&self) -> LocalApi {
        LocalApi::new(&self.settings.socket)
    }

    pub(crate) fn state_file(&self, name: &str) -> PathBuf {
        self.settings.state_dir.join(name)
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.state_file("tailscaled.log")).unwrap_or_default()
    }

    /// Processes that run with these files.
    pub(crate) fn pids(&self) -> Vec<i32> {
        let own = self.files.path().as_os_str().as_encoded_bytes();
        let numbers = fs::read_dir("/proc").unwrap();
        let numbers = numbers.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let is_ours = |pid: &i32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.windows(own.len()).any(|part| part == own)
        };
        numbers.filter(is_ours).collect()
    }

    pub(crate) fn kill(&self) {
        for pid in self.pids() {
            // It may have ended by itself.
            let _ = rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let last = &lines[lines.len().saturating_sub(60)..];
            eprintln!("tailscaled said at last:\n{}", last.join("\n"));
        }
        let pids = self.pids();
        self.kill();
        for pid in pids {
            // Not ours to wait for, if another process has started it.
            let _ = rustix::process::waitpid(Pid::from_raw(pid), WaitOptions::empty());
        }
    }
}

/// Waits until a tailscaled answers.
pub(crate) async fn answers(api: &LocalApi) {
    let end = tokio::time::Instant::now() + PATIENCE;
    while let Err(error) = api.status().await {
        assert!(tokio::time::Instant::now() < end, "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Asks until there is an answer.
pub(crate) async fn until<T>(what: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let end = tokio::time::Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = probe().await {
            return answer;
        }
        assert!(tokio::time::Instant::now() < end, "{what}: not in time");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Starts a tailscaled in a node, and joins.
pub(crate) async fn member(node: &Node, server: &Headscale, route: &str) -> (Place, Supervisor) {
    let place = Place::new(node, Some(server));
    let mut supervisor = place.supervisor();
    supervisor.ensure().await.unwrap();
    answers(&place.api()).await;
    let (key, _) = new_key(server);
    let start = start(server, &key, usual(node.name(), route));
    place.api().join(&start, PATIENCE).await.unwrap();
    (place, supervisor)
}

/// Waits until no process runs with these files.
pub(crate) fn nobody_runs(place: &Place) {
    let is_gone = |pid: &i32| !Path::new(&format!("/proc/{pid}/exe")).exists();
    eventually(PATIENCE, "no tailscaled", || {
        place.pids().iter().all(is_gone).then_some(())
    })
    .unwrap();
}
