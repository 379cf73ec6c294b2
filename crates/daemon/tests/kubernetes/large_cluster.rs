//! A large cluster costs a node little.

use std::fs;
use std::time::{Duration, Instant};

use lab::kubernetes::ControlPlane;
use lab::scenario::{JOIN_TIMEOUT, MeshCluster, MeshNode};
use lab::eventually;
use rustix::param::clock_ticks_per_second;
use serde_json::{Value, json};

use crate::crowd::{Crowd, NODES, PODS, networks};

/// How long the daemon is watched.
const A_MINUTE: Duration = Duration::from_mins(1);
/// For making the objects, on a busy machine.
const CREATED: Duration = Duration::from_mins(5);

/// What a daemon as we ship it may take at the most.
const MAX_RSS_MIB: f64 = 25.0;
const MAX_CPU_PERCENT: f64 = 1.0;

#[test]
#[expect(
    clippy::print_stdout,
    reason = "the figures are what docs/kubernetes.md has"
)]
fn a_thousand_nodes_and_ten_thousand_pods_cost_a_daemon_little() {
    let mut cluster = MeshCluster::prepare(1);
    let mut plane = ControlPlane::start(&grounds.server).unwrap();
    // They would mark the Nodes as lost, and delete their Pods.
    plane.stop_controllers().unwrap();
    let user = account(&plane);
    let before = Instant::now();
    let crowd = Crowd::create(&grounds.server, &plane);
    let took = before.elapsed();
    assert!(took < CREATED, "{took:?}");
    println!(
        "{NODES} Nodes and {PODS} Pods made in {took:.1?}: {}",
        sizes(&plane)
    );

    let url = cluster.headscale.url();
    let node = &mut cluster.nodes[0];
    configure(node, &url, &user);
    let before = Instant::now();
    node.start_daemon().unwrap();
    node.await_ready(JOIN_TIMEOUT).unwrap();
    println!("ready after {:.1?}", before.elapsed());
    knows_all(node);

    let process = Process::of(node);
    println!("with all of them known: {}", process.memory());
    let before = process.processor_seconds();
    let changes = crowd.stir(A_MINUTE);
    let seconds = process.processor_seconds() - before;
    let percent = 100.0 * seconds / A_MINUTE.as_secs_f64();
    println!("{percent:.2} % of a processor for {A_MINUTE:?} with {changes:?}");
    println!("after that: {}", process.memory());
    assert!(
        changes.pods > 1_100 && changes.nodes > 180,
        "the API server was too slow: {changes:?}"
    );
    knows_all(node);
    if process.is_as_shipped() {
        assert!(process.mib("VmHWM:") <= MAX_RSS_MIB, "{}", process.memory());
        assert!(percent <= MAX_CPU_PERCENT, "{percent:.2} %");
    }
}

/// How long the objects are, on the average.
fn sizes(plane: &ControlPlane) -> String {
    let size = |path: &str| {
        let list = plane.admin().get(path).unwrap();
        let items = list["items"].as_array().unwrap();
        items
            .iter()
            .map(|item| item.to_string().len())
            .sum::<usize>()
            / items.len()
    };
    let (node, pod) = (
        size("/api/v1/nodes?limit=50"),
        size("/api/v1/pods?limit=50"),
    );
    format!("{node} and {pod} bytes each")
}

/// What the daemon would know after a restart is what it knows now.
fn knows_all(node: &MeshNode) {
    let what = "the daemon knows all nodes' networks";
    eventually(JOIN_TIMEOUT, what, || {
        let kept = fs::read(node.file("/var/lib/headcni/kubernetes.json")).ok()?;
        let kept: Value = serde_json::from_slice(&kept).unwrap();
        let nodes = kept["nodes"].as_object()?;
        let of_last = &nodes.get(&format!("node-{NODES}"))?["assigned"];
        (nodes.len() == NODES && *of_last == json!(networks(NODES))).then_some(())
    })
    .unwrap();
}

struct Process(u32);

impl Process {
    fn of(node: &MeshNode) -> Self {
        Self(node.daemon_pid().unwrap())
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{file}", self.0)).unwrap()
    }

    /// What we ship needs no library. What `cargo build` leaves for tests does, and is not meant to be
    /// small.
    fn is_as_shipped(&self) -> bool {
        !self.read("maps").contains(".so")
    }

    fn mib(&self, key: &str) -> f64 {
        let status = self.read("status");
        let line = status.lines().find(|line| line.starts_with(key)).unwrap();
        let kib: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        kib / 1024.0
    }

    fn memory(&self) -> String {
        let (now, most) = (self.mib("VmRSS:"), self.mib("VmHWM:"));
        format!("{now:.1} MiB, and {most:.1} MiB at the most")
    }

    /// `utime` and `stime` of <https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html>.
    fn processor_seconds(&self) -> f64 {
        let stat = self.read("stat");
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        let ticks = fields.split(' ').skip(11).take(2);
        let ticks: u32 = ticks.map(|text| text.parse::<u32>().unwrap()).sum();
        let per_second = u32::try_from(clock_ticks_per_second()).unwrap();
        f64::from(ticks) / f64::from(per_second)
    }
}
