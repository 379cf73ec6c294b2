//! The cost of a large cluster for one daemon.

use std::fs;
use std::time::{Duration, Instant};

use lab::eventually;
use lab::kubernetes::ControlPlane;
use lab::scenario::{JOIN_TIMEOUT, KubeApi, MeshCluster, MeshNode};
use rustix::param::clock_ticks_per_second;
use serde_json::{Value, json};

use crate::documented_rules;
use crate::many_objects::{NODES, Objects, PODS, pod_cidrs};

/// How long the daemon is measured.
const PERIOD: Duration = Duration::from_mins(1);
/// For creating the objects on a busy machine.
const CREATION_TIMEOUT: Duration = Duration::from_mins(5);

/// Limits for a release build.
const MAX_RSS_MIB: f64 = 25.0;
const MAX_CPU_PERCENT: f64 = 1.0;

#[test]
#[expect(
    clippy::print_stdout,
    reason = "the figures are what docs/kubernetes.md has"
)]
fn a_daemon_stays_small_with_1000_nodes_and_10000_pods() {
    let mut cluster = MeshCluster::prepare(1);
    let mut api = KubeApi::start(&cluster, &documented_rules());
    // They would mark the Nodes as lost and delete their Pods.
    api.plane.stop_controllers().unwrap();
    let before = Instant::now();
    let objects = Objects::create(&cluster.topology.server, &api.plane);
    let took = before.elapsed();
    assert!(took < CREATION_TIMEOUT, "{took:?}");
    println!(
        "{NODES} Nodes and {PODS} Pods created in {took:.1?}: {}",
        sizes(&api.plane)
    );

    let url = cluster.headscale.url();
    let node = &mut cluster.nodes[0];
    api.configure(node, &url);
    let before = Instant::now();
    node.start_daemon().unwrap();
    node.await_ready(JOIN_TIMEOUT).unwrap();
    println!("ready after {:.1?}", before.elapsed());
    await_all_known(node);

    let process = Process::of(node);
    println!("with all of them known: {}", process.memory());
    let before = process.processor_seconds();
    let changes = objects.update_for(PERIOD);
    let seconds = process.processor_seconds() - before;
    let percent = 100.0 * seconds / PERIOD.as_secs_f64();
    println!("{percent:.2} % of a processor for {PERIOD:?} with {changes:?}");
    println!("after that: {}", process.memory());
    assert!(
        changes.pods > 1_100 && changes.nodes > 180,
        "the API server was too slow: {changes:?}"
    );
    await_all_known(node);
    if process.is_release_build() {
        assert!(process.mib("VmHWM:") <= MAX_RSS_MIB, "{}", process.memory());
        assert!(percent <= MAX_CPU_PERCENT, "{percent:.2} %");
    }
}

/// The average size of the objects.
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

/// Checks the daemon's state file.
fn await_all_known(node: &MeshNode) {
    let what = "the daemon has the pod CIDRs of all Nodes";
    eventually(JOIN_TIMEOUT, what, || {
        let state = fs::read(node.file("/var/lib/headcni/kubernetes.json")).ok()?;
        let state: Value = serde_json::from_slice(&state).unwrap();
        let nodes = state["nodes"].as_object()?;
        let of_last = &nodes.get(&format!("node-{NODES}"))?["assigned"];
        (nodes.len() == NODES && *of_last == json!(pod_cidrs(NODES))).then_some(())
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

    /// A release build is static.
    fn is_release_build(&self) -> bool {
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
        format!("{now:.1} MiB, {most:.1} MiB at most")
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
