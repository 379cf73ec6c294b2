//! A real runtime: podman with its CNI backend runs containers on a node.
//!
//! The same is asked of the reference plugins and of headcni, so that what differs is headcni's.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use lab::{Address, EchoServer, Family, Ignore, Netns, Node, Output, Snapshot, eventually, tools};
use rstest::rstest;
use serde_json::{Value, json};

use crate::calls::*;
use crate::cgroups;

/// Nothing outside of the node: by default podman's locks are in `/dev/shm`, which is the host's.
/// The container's own cgroups are, and conmon shall have none.
const CONTAINERS_CONF: &str = r#"
[containers]
cgroups = "no-conmon"
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
log_driver = "k8s-file"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
lock_type = "file"
runtime = "runc"
[network]
network_backend = "cni"
cni_plugin_dirs = ["/opt/cni/bin"]
network_config_dir = "/etc/cni/net.d"
"#;

const STORAGE_CONF: &str = r#"
[storage]
driver = "vfs"
runroot = "/run/containers/storage"
graphroot = "/var/lib/containers/storage"
"#;

/// Makes podman's files appear on the node as if it had been installed: it is not on the host.
fn install(node: &Node) {
    let tree = tools::podman_dir();
    let layers = format!("lowerdir={}/usr:/usr", tree.display());
    node.run(["mount", "-t", "overlay", "-o", &layers, "overlay", "/usr"])
        .unwrap();
    // A host that has a podman of its own may have configured it.
    node.run(["rm", "-rf", "/etc/containers"]).unwrap();
    let etc = format!("{}/etc/containers", tree.display());
    node.run(["cp", "-r", &etc, "/etc"]).unwrap();
}

/// A node that podman uses.
struct Podman<'n> {
    node: &'n Node,
    network: String,
}

impl<'n> Podman<'n> {
    /// Sets podman up with one network, which this configuration describes.
    fn new(node: &'n Node, conflist: &Value) -> Self {
        cgroups::mount(node);
        install(node);
        let bin = "/opt/cni/bin";
        node.run(["mkdir", "-p", bin]).unwrap();
        for dir in [tools::cni_plugin_dir(), tools::headcni_bin_dir()] {
            let all = format!("cp {}/* {bin}", dir.display());
            node.run(["sh", "-c", &all]).unwrap();
        }
        node.write("/etc/containers/containers.conf", CONTAINERS_CONF)
            .unwrap();
        node.write("/etc/containers/storage.conf", STORAGE_CONF)
            .unwrap();
        let file = "/etc/cni/net.d/10-under-test.conflist";
        node.write(file, conflist.to_string()).unwrap();
        let network = conflist["name"].as_str().unwrap().to_owned();
        Self { node, network }
    }

    /// What there is on the node, but for what may stay on it for the next container.
    fn snapshot(&self, lasting: Ignore) -> Snapshot {
        let dirs = [DIRS, &["/run/netns"]].concat();
        let lasting = lasting.path("/etc/cni/net.d/cni.lock");
        self.node.snapshot(&dirs).unwrap().ignoring(lasting)
    }

    fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = self.node.command("podman");
        let path = std::env::var_os("PATH").unwrap_or_default();
        // Whoever runs the tests may have a configuration at home.
        command.env_clear().env("PATH", path).env("HOME", "/run");
        command.args(args);
        command
    }

    fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Output {
        lab::run(&mut self.command(args)).unwrap()
    }

    /// Starts a container that waits for its end, with more options for `podman run`.
    fn start(&self, name: &str, options: &[&str]) -> Container<'_> {
        let root = format!("/run/rootfs-{name}");
        for dir in ["bin", "dev", "etc", "proc", "run", "sys", "tmp"] {
            let dir = format!("{root}/{dir}");
            self.node.run(["mkdir", "-p", &dir]).unwrap();
        }
        let bin = format!("{root}/bin");
        self.node.run(["cp", "/bin/busybox", &bin]).unwrap();
        let container = Container {
            podman: self,
            name: name.to_owned(),
            cgroup: format!("headcni-test-{}-{name}", self.node.holder_pid()),
        };
        let (parent, timeout) = (format!("/{}", container.cgroup), "120");
        let line = [
            "run",
            "--detach",
            "--name",
            name,
            "--network",
            &self.network,
        ];
        // It ends by itself, should nobody be left to end it. And it may ping.
        let end = ["--cgroup-parent", &parent, "--timeout", timeout];
        let ping = ["--cap-add", "NET_RAW"];
        let what = ["--rootfs", &root, "/bin/busybox", "sleep", "1000"];
        let line = line.iter().chain(&end).chain(&ping);
        self.run(line.chain(options).chain(&what));
        container
    }
}

/// A container, and its network namespace. It goes with whatever podman keeps of it.
struct Container<'p> {
    podman: &'p Podman<'p>,
    name: String,
    cgroup: String,
}

impl Container<'_> {
    /// What podman tells about it.
    fn inspect(&self) -> Value {
        let text = self.podman.run(["container", "inspect", &self.name]).stdout;
        let list: Value = serde_json::from_str(&text).unwrap();
        list[0].clone()
    }

    /// The address that podman thinks it has.
    fn address(&self) -> String {
        let networks = &self.inspect()["NetworkSettings"]["Networks"];
        let address = networks[&self.podman.network]["IPAddress"].as_str();
        address.unwrap().to_owned()
    }

    /// Runs a command of busybox in it; it must succeed.
    fn exec(&self, line: &[&str]) -> String {
        let exec = ["exec", &self.name, "/bin/busybox"];
        self.podman.run(exec.iter().chain(line)).stdout
    }

    fn remove(self) {
        self.podman
            .run(["rm", "--force", "--time", "0", &self.name]);
    }
}

impl Netns for Container<'_> {
    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        let node = format!("--mount=/proc/{}/ns/mnt", self.podman.node.holder_pid());
        let net = format!("--net={}", self.netns_file().display());
        command.args([&node, &net, "--"]).arg(program);
        command
    }

    fn netns_file(&self) -> PathBuf {
        let pid = &self.inspect()["State"]["Pid"];
        format!("/proc/{pid}/ns/net").into()
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        // conmon is nobody's child, and the cgroups are the host's: whatever happened, they must
        // go. It has nothing to do if they have gone already.
        let rm = ["rm", "--force", "--ignore", "--time", "0", &self.name];
        let _ = lab::attempt(&mut self.podman.command(rm));
        cgroups::remove(self.podman.node, &self.cgroup);
    }
}

/// A network and what containers on it can expect.
struct Expected {
    conflist: Value,
    /// The addresses of the first three containers.
    addresses: [&'static str; 3],
    gateway: &'static str,
    /// What stays on the node for the next container.
    lasting: Ignore,
}

impl Expected {
    /// `bridge` of the reference plugins, as podman itself would write it.
    fn of_reference() -> Self {
        let bridge = json!({
            "type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true,
            "ipam": {
                "type": "host-local", "ranges": [[{"subnet": "10.77.0.0/24"}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        });
        let portmap = json!({"type": "portmap", "capabilities": {"portMappings": true}});
        let conflist =
            json!({"cniVersion": "1.0.0", "name": "plain", "plugins": [bridge, portmap]});
        Self {
            lasting: lasting("plain"),
            conflist,
            addresses: ["10.77.0.2", "10.77.0.3", "10.77.0.4"],
            gateway: "10.77.0.1",
        }
    }

    /// The chain that the project ships.
    fn of_chain() -> Self {
        let shipped = shipped("10-headcni-chain.conflist");
        Self {
            conflist: serde_json::from_str(&shipped).unwrap(),
            addresses: ["10.244.1.2", "10.244.1.3", "10.244.1.4"],
            gateway: "10.244.1.1",
            lasting: lasting("headcni-chain"),
        }
    }

    /// The native network that the project ships.
    fn of_native() -> Self {
        let shipped = shipped("10-headcni-native.conflist");
        Self {
            conflist: serde_json::from_str(&shipped).unwrap(),
            addresses: ["10.244.1.2", "10.244.1.3", "10.244.1.4"],
            gateway: "10.244.1.1",
            lasting: lasting_natively("headcni-network"),
        }
    }
}

#[rstest]
#[case::reference_plugins(Expected::of_reference())]
#[case::chain(Expected::of_chain())]
#[case::native(Expected::of_native())]
fn containers_of_podman_talk_and_leave_nothing(#[case] expected: Expected) {
    let node = node();
    let podman = Podman::new(&node, &expected.conflist);
    let before = podman.snapshot(expected.lasting);
    let [first, second, third] = expected.addresses;

    let (one, two) = (podman.start("one", &[]), podman.start("two", &[]));
    for (container, address) in [(&one, first), (&two, second)] {
        assert_eq!(container.address(), address);
        let has = |one: &Address| one.dev == "eth0" && one.cidr.split('/').next() == Some(address);
        assert!(container.addresses().unwrap().iter().any(has));
        container.exec(&["ping", "-c", "1", "-W", "5", expected.gateway]);
        node.ping(address).unwrap();
    }
    one.exec(&["ping", "-c", "1", "-W", "5", second]);

    // It dies, and podman takes its network down by itself; then it gets a new one.
    podman.run(["kill", &one.name]);
    eventually(Duration::from_secs(10), "podman cleans up", || {
        (one.inspect()["State"]["Status"] == "exited").then_some(())
    })
    .unwrap();
    podman.run(["start", &one.name]);
    assert_eq!(one.address(), third);
    one.exec(&["ping", "-c", "1", "-W", "5", expected.gateway]);

    one.remove();
    two.remove();
    node.assert_unchanged(&before);
}

#[rstest]
#[case::reference_plugins(Expected::of_reference())]
#[case::chain(Expected::of_chain())]
#[case::native(Expected::of_native())]
fn a_published_port_leads_into_the_container(#[case] expected: Expected) {
    let (node, outside) = (node(), Node::new("outside").unwrap());
    node.wire("up0", "192.0.2.1/24", &outside, "192.0.2.2/24")
        .unwrap();
    let podman = Podman::new(&node, &expected.conflist);
    let before = podman.snapshot(expected.lasting);

    let container = podman.start("one", &["--publish", "8080:80"]);
    let server = EchoServer::start(&container, Family::V4, 80).unwrap();
    let published: SocketAddr = "192.0.2.1:8080".parse().unwrap();
    let seen_as = outside.call_echo(published, "hello").unwrap();
    assert_eq!(seen_as.to_string(), "192.0.2.2");
    drop(server);

    container.remove();
    node.assert_unchanged(&before);
    assert_nothing_published(&node);
}
