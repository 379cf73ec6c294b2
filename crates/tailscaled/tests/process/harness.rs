//! Headscale, nodes with a tailscaled each, and a fake tailscaled.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use lab::tools::{HEADSCALE, TAILSCALE};
use lab::{Headscale, Netns, Node, eventually};
use rustix::process::{Pid, Signal, WaitOptions};
use serde_json::{Value, json};
use tailscaled::localapi::{AuthKey, LocalApi, MaskedPrefs, StartOptions, StartPrefs};
use tailscaled::supervisor::{Supervisor, TailscaledSpec};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

/// For operations that take a second or two on an idle machine.
pub(crate) const DEADLINE: Duration = Duration::from_mins(1);
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 99, 1, 1);
pub(crate) const TAG: &str = "tag:k8s-node";

/// Three nodes, each connected to the others.
pub(crate) struct Lab {
    pub(crate) server: Node,
    pub(crate) nodes: [Node; 2],
}

impl Lab {
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
        // Packets to other hosts leave the node, so that a capture sees them.
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

/// Auto-approves the pod CIDRs, and allows all traffic between nodes and pods.
pub(crate) fn open_policy() -> Value {
    json!({
        "tagOwners": { TAG: [] },
        "autoApprovers": { "routes": { "10.244.0.0/16": [TAG] } },
        "acls": [{ "action": "accept", "src": [TAG, "10.244.0.0/16"],
            "dst": [format!("{TAG}:*"), "10.244.0.0/16:*"] }],
    })
}

/// A pre-auth key and its id.
pub(crate) fn new_key(server: &Headscale) -> (String, String) {
    let args = ["preauthkeys", "create", "--tags", TAG, "-o", "json"];
    let created = server.cli(args).unwrap();
    let key = created["key"]
        .as_str()
        .unwrap_or_else(|| panic!("{created}"));
    (key.to_owned(), created["id"].to_string().replace('"', ""))
}

pub(crate) fn start(server: &Headscale, key: &str, prefs: MaskedPrefs) -> StartOptions {
    let prefs = MaskedPrefs {
        control_url: Some(server.url()),
        ..prefs
    };
    StartOptions {
        auth_key: Some(AuthKey::new(key)),
        prefs: StartPrefs::new(&prefs),
    }
}

/// The prefs of a headcni node.
pub(crate) fn node_prefs(name: &str, route: &str) -> MaskedPrefs {
    MaskedPrefs {
        hostname: Some(name.to_owned()),
        advertise_routes: Some(vec![route.parse().unwrap()]),
        route_all: Some(true),
        no_snat: Some(true),
        no_stateful_filtering: Some(Some(true)),
        ..MaskedPrefs::default()
    }
}

/// Proxy variables, which tailscaled would inherit from the test. Lab nodes have no route to a proxy.
const PROXIES: [&str; 6] = [
    "HTTPS_PROXY",
    "https_proxy",
    "HTTP_PROXY",
    "http_proxy",
    "ALL_PROXY",
    "all_proxy",
];

/// Without a proxy: an empty variable means none.
pub(crate) fn spec(
    state_dir: impl Into<PathBuf>,
    socket: impl Into<PathBuf>,
    netns: impl Into<PathBuf>,
) -> TailscaledSpec {
    let mut spec = TailscaledSpec::new(TAILSCALE.program("tailscaled"), state_dir, socket);
    spec.netns = Some(netns.into());
    spec.environment = PROXIES.map(|name| (name.to_owned(), String::new())).into();
    spec
}

/// A tailscaled in a lab node. Dropping it kills the process.
pub(crate) struct TailscaledFixture {
    files: TempDir,
    pub(crate) spec: TailscaledSpec,
}

impl TailscaledFixture {
    pub(crate) fn new(node: &Node, server: Option<&Headscale>) -> Self {
        let files = TempDir::new().unwrap();
        let [state_dir, socket] = ["state", "ts.sock"].map(|name| files.path().join(name));
        let mut spec = spec(state_dir, socket, node.netns_file());
        spec.ca_file = server.map(|server| server.ca_file().to_owned());
        Self { files, spec }
    }

    pub(crate) fn supervisor(&self) -> Supervisor {
        Supervisor::new(self.spec.clone())
    }

    pub(crate) fn api(&self) -> LocalApi {
        LocalApi::new(&self.spec.socket)
    }

    pub(crate) fn state_file(&self, name: &str) -> PathBuf {
        self.spec.state_dir.join(name)
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.state_file("tailscaled.log")).unwrap_or_default()
    }

    /// Processes whose command line names our files.
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
            // It may have exited already.
            let _ = rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
        }
    }
}

impl Drop for TailscaledFixture {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let last = &lines[lines.len().saturating_sub(60)..];
            eprintln!("end of the tailscaled log:\n{}", last.join("\n"));
        }
        let pids = self.pids();
        self.kill();
        for pid in pids {
            // Fails if another process is the parent.
            let _ = rustix::process::waitpid(Pid::from_raw(pid), WaitOptions::empty());
        }
    }
}

/// Waits until the `LocalAPI` responds.
pub(crate) async fn await_ready(api: &LocalApi) {
    let end = tokio::time::Instant::now() + DEADLINE;
    while let Err(error) = api.status().await {
        assert!(tokio::time::Instant::now() < end, "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Polls until `probe` returns something.
pub(crate) async fn until<T>(what: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let end = tokio::time::Instant::now() + DEADLINE;
    loop {
        if let Some(found) = probe().await {
            return found;
        }
        assert!(tokio::time::Instant::now() < end, "{what}: not in time");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Starts a tailscaled in a node, and joins the tailnet.
pub(crate) async fn join_node(
    node: &Node,
    server: &Headscale,
    route: &str,
) -> (TailscaledFixture, Supervisor) {
    let tailscaled = TailscaledFixture::new(node, Some(server));
    let mut supervisor = tailscaled.supervisor();
    supervisor.ensure().await.unwrap();
    await_ready(&tailscaled.api()).await;
    let (key, _) = new_key(server);
    let start = start(server, &key, node_prefs(node.name(), route));
    tailscaled.api().join(&start, DEADLINE).await.unwrap();
    (tailscaled, supervisor)
}

pub(crate) fn await_stopped(tailscaled: &TailscaledFixture) {
    let is_gone = |pid: &i32| !Path::new(&format!("/proc/{pid}/exe")).exists();
    eventually(DEADLINE, "no tailscaled", || {
        tailscaled.pids().iter().all(is_gone).then_some(())
    })
    .unwrap();
}

/// Sends the same response to every request.
pub(crate) struct FakeTailscaled {
    _files: TempDir,
    socket: PathBuf,
}

impl FakeTailscaled {
    pub(crate) fn new(response: &'static str) -> Self {
        let files = TempDir::new().unwrap();
        let socket = files.path().join("ts.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await?;
                tokio::spawn(async move {
                    let mut request = [0; 4096];
                    let length = stream.read(&mut request).await?;
                    let request = String::from_utf8_lossy(&request[..length]).to_lowercase();
                    assert!(request.contains("host: local-tailscaled.sock"), "{request}");
                    stream.write_all(response.as_bytes()).await?;
                    // Keep the connection open until the client closes it.
                    stream.read(&mut [0]).await
                });
            }
            #[expect(unreachable_code, reason = "gives the block its type")]
            io::Result::Ok(())
        });
        Self {
            _files: files,
            socket,
        }
    }

    pub(crate) fn api(&self) -> LocalApi {
        LocalApi::new(&self.socket).with_timeout(Duration::from_millis(500))
    }
}
