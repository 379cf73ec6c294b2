//! A real runtime: containerd and runc start containers on a node, with headcni as their network.

use std::fs::OpenOptions;
use std::io::Write;
use std::time::Duration;

use lab::{DEADLINE, EchoServer, Family, Ignore, Netns, Node, Running, eventually, tools};
use rstest::rstest;

use crate::calls::*;
use crate::cgroups;

/// No image, no CRI, nothing outside the node's own `/run`.
const CONFIG: &str = r#"
version = 2
root = "/run/containerd-root"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.grpc.v1.cri",
  "io.containerd.internal.v1.opt",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]
"#;

/// What a container does: tells its addresses, then waits until told to end.
const SCRIPT: &str = "busybox ip -4 address show eth0; echo begun; read word < /end";

/// containerd on a node.
struct Containerd<'n> {
    node: &'n Node,
    _daemon: Running,
}

impl<'n> Containerd<'n> {
    fn start(node: &'n Node) -> Self {
        cgroups::mount(node);
        let bin = "/opt/cni/bin";
        node.run(["mkdir", "-p", bin]).unwrap();
        let plugins = ["bridge", "host-local", "loopback", "portmap"];
        let plugins = plugins.map(|name| tools::cni_plugin_dir().join(name));
        for plugin in plugins.into_iter().chain([headcni()]) {
            let plugin = plugin.display().to_string();
            node.run(["cp", &plugin, bin]).unwrap();
        }
        node.write("/run/containerd.toml", CONFIG).unwrap();
        let mut command = node.command("containerd");
        command.args(["--config", "/run/containerd.toml", "--log-level", "warn"]);
        let daemon = Running::spawn(&mut command, b"").unwrap();
        eventually(Duration::from_secs(20), "containerd answers", || {
            let answer = node.attempt(["ctr", "version"]).unwrap();
            answer.status.success().then_some(())
        })
        .unwrap();
        Self {
            node,
            _daemon: daemon,
        }
    }

    /// Starts a container, and returns when it runs, with its address.
    fn run(&self, id: &str) -> Container<'_> {
        let root = format!("/run/rootfs-{id}");
        for dir in ["bin", "dev", "proc", "sys"] {
            self.node
                .run(["mkdir", "-p", &format!("{root}/{dir}")])
                .unwrap();
        }
        let bin = format!("{root}/bin");
        self.node.run(["cp", "/bin/busybox", &bin]).unwrap();
        self.node.run(["mkfifo", &format!("{root}/end")]).unwrap();

        // Its name is the host's, because the node shares the host's cgroups.
        let cgroup = format!("/headcni-test-{}-{id}", self.node.holder_pid());
        let output = format!("{root}/output");
        let shell = format!(
            "exec ctr run --rm --cni --cgroup {cgroup} --rootfs {root} {id} \
             /bin/busybox sh -c '{SCRIPT}' > {output}"
        );
        let mut command = self.node.command("sh");
        let path = std::env::var_os("PATH").unwrap_or_default();
        command.args(["-c", &shell]).env_clear().env("PATH", path);
        let running = Running::spawn(&mut command, b"").unwrap();
        let container = Container {
            runtime: self,
            id: id.to_owned(),
            root,
            running: Some(running),
        };
        let begun = eventually(Duration::from_secs(20), "the container begins", || {
            container.said().contains("begun").then_some(())
        });
        if let Err(error) = begun {
            container.kill();
            panic!("{error}: {}", container.ended());
        }
        container
    }
}

/// A container that runs until it is told to end.
struct Container<'r> {
    runtime: &'r Containerd<'r>,
    id: String,
    root: String,
    running: Option<Running>,
}

impl Container<'_> {
    fn said(&self) -> String {
        let output = format!("{}/output", self.root);
        self.runtime.node.read(output).unwrap_or_default()
    }

    fn address(&self) -> String {
        let said = self.said();
        let (_, rest) = said.split_once("inet ").unwrap();
        rest.split_once('/').unwrap().0.to_owned()
    }

    fn kill(&self) {
        let node = self.runtime.node;
        let _ = node.attempt(["ctr", "task", "kill", "--signal", "KILL", &self.id]);
    }

    /// Waits until the runtime has taken the container down, and gives its words on stderr.
    fn ended(mut self) -> String {
        let output = self.running.take().unwrap().wait(DEADLINE).unwrap();
        output.stderr
    }

    /// Tells it to end, and waits.
    fn let_go(self) -> String {
        let end = self.runtime.node.path(format!("{}/end", self.root));
        // Read and write, because then it blocks neither us nor, until we close it, the word.
        let mut end = OpenOptions::new().read(true).write(true).open(end).unwrap();
        end.write_all(b"enough\n").unwrap();
        self.ended()
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        // Its shim is nobody's child, and its cgroups are the host's: whatever happened, they
        // must go while containerd is there. All of this fails if they have gone already.
        let node = self.runtime.node;
        self.kill();
        if let Some(running) = self.running.take() {
            let _ = running.wait(DEADLINE);
        }
        let _ = node.attempt(["ctr", "task", "delete", "--force", &self.id]);
        let _ = node.attempt(["ctr", "container", "delete", &self.id]);
    }
}

/// A network that the project ships, and what containers leave of it.
struct Expected {
    file: &'static str,
    net: &'static str,
    /// Where the leases are.
    leases: &'static str,
    /// What stays on the node for the next container.
    lasting: Ignore,
    links: &'static [&'static str],
}

impl Expected {
    fn of_chain() -> Self {
        Self {
            file: "10-headcni-chain.conflist",
            net: "headcni-chain",
            leases: "/var/lib/cni/networks/headcni-chain",
            lasting: lasting("headcni-chain"),
            links: &["cni0"],
        }
    }

    fn of_native() -> Self {
        Self {
            file: "10-headcni-native.conflist",
            net: "headcni-network",
            leases: "/var/lib/cni/networks/headcni/headcni-network",
            lasting: lasting_natively("headcni-network"),
            links: &[],
        }
    }
}

#[rstest]
#[case::chain(Expected::of_chain())]
#[case::native(Expected::of_native())]
fn containers_of_containerd_talk_and_leave_nothing(#[case] expected: Expected) {
    let Expected { file, net, .. } = expected;
    let node = node();
    node.write(format!("/etc/cni/net.d/{file}"), shipped(file))
        .unwrap();
    let containerd = Containerd::start(&node);
    let before = node.snapshot(DIRS).unwrap().ignoring(expected.lasting);

    let (one, two) = (containerd.run("one"), containerd.run("two"));
    assert_eq!(one.address(), "10.244.1.2");
    assert_eq!(two.address(), "10.244.1.3");
    for container in [&one, &two] {
        let said = container.said();
        assert!(said.contains("mtu 1380"), "{said}");
        node.ping(&container.address()).unwrap();
    }
    let exec = [
        "ctr",
        "task",
        "exec",
        "--exec-id",
        "e",
        "one",
        "/bin/busybox",
    ];
    let ping = ["ping", "-c", "1", "-W", "5", "10.244.1.3"];
    node.run(exec.iter().chain(&ping)).unwrap();
    let server = EchoServer::start(&node, Family::V4, 7000).unwrap();
    let talk = ["sh", "-c", "echo hello | busybox nc -w 5 10.244.1.1 7000"];
    let answer = node.run(exec.iter().chain(&talk)).unwrap().stdout;
    assert_eq!(answer, "10.244.1.2\nhello\n");
    drop(server);
    assert_eq!(
        records(&node, net),
        ["default-one@eth0.json", "default-two@eth0.json"]
    );

    // One ends by itself, the other is killed.
    assert_eq!(one.let_go(), "");
    assert_eq!(records(&node, net), ["default-two@eth0.json"]);
    assert!(!node.has(format!("{}/10.244.1.2", expected.leases)));
    assert!(node.has(format!("{}/10.244.1.3", expected.leases)));
    node.ping(&two.address()).unwrap();
    two.kill();
    two.ended();
    node.assert_unchanged(&before);
    assert_eq!(node.links().unwrap(), expected.links);
}
