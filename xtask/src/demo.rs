//! `make demo`: three nodes in one mesh, one of them behind NAT, with a real Headscale and tailscaled,
//! and a test of every pair of pods.
//!
//! All of it runs in namespaces that end with this process.

mod checks;
mod interrupt;
mod pairs;
mod shell_commands;
mod table;
mod throughput;

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use lab::scenario::{JOIN_TIMEOUT, MeshCluster, Site, Topology};

use crate::dist;
use crate::privilege::{as_root, require_root_available};
use crate::process::progress;
use crate::tools::{self, ToolSet};
use checks::Checks;
use interrupt::Interrupt;
use pairs::DemoPod;

/// Marks the second start of this program, as root and inside the namespaces.
const INSIDE: &str = "--inside";
const KEEP: &str = "--keep";

const SITES: [Site; 3] = [Site::Open, Site::Open, Site::BehindNat];
const THROUGHPUT_TIME: Duration = Duration::from_secs(2);

/// This program's temporary files must go away with it, even if it is killed.
const PREPARE: &str = r#"
mount -t tmpfs -o mode=1777 none /dev/shm
exec "$@"
"#;

/// `cargo xtask demo [--keep]`: with `--keep` it stays up until it is interrupted.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        [INSIDE] => demonstrate(false),
        [INSIDE, KEEP] => demonstrate(true),
        [] | [KEEP] => prepare(&words),
        _ => bail!("demo takes {KEEP} or nothing, not {words:?}"),
    }
}

/// Builds what is missing as the caller, then continues as root.
fn prepare(words: &[&str]) -> Result<()> {
    require_root_available("make demo")?;
    tools::ensure("make demo", &ToolSet::demo())?;
    if env::var_os("HEADCNI_BIN_DIR").is_none() {
        dist::build()?;
    }
    let this = env::current_exe().context("find this program")?;
    let mut inside = Command::new("unshare");
    inside
        .args(["--net", "--mount", "--propagation", "private"])
        .args(["sh", "-ec", PREPARE, "sh"])
        .arg(this)
        .args(["demo", INSIDE])
        .args(words)
        .env("TMPDIR", "/dev/shm");
    // Replaces this process, so that a signal ends the demo.
    Err(as_root(inside)?.exec()).context("start unshare")
}

#[expect(clippy::print_stdout, reason = "the tables are the result")]
fn demonstrate(keep: bool) -> Result<()> {
    let interrupt = Interrupt::listen()?;
    let start = Instant::now();

    progress(start, "starting three nodes, one of them behind NAT");
    let grounds = Topology::new(&SITES)?;
    let sniffers = grounds.sniff()?;
    progress(start, "starting Headscale with an embedded DERP relay");
    let mut cluster = MeshCluster::on(grounds.clone())?;
    progress(start, "starting headcni-daemon on every node");
    for member in &mut cluster.nodes {
        member.start_daemon()?;
    }
    for member in &cluster.nodes {
        member.await_ready(JOIN_TIMEOUT)?;
        let pod_cidrs = member.pod_cidrs().join(" and ");
        let name = member.node.name();
        progress(start, &format!("{name} serves {pod_cidrs}"));
    }
    cluster.await_routes()?;

    progress(start, "attaching two pods on every node by CNI");
    let pods = DemoPod::two_each(&cluster)?;
    progress(start, "waiting for direct paths between nodes");
    pairs::await_direct(&cluster, &pods);
    progress(start, "testing every pair of pods over IPv4 and IPv6");
    let pairs = pairs::test_all(&cluster, &pods)?;
    println!("\n{}", table::pairs(&pairs));

    progress(start, "measuring throughput");
    let mut measured = throughput::over_mesh(&cluster, &pods, THROUGHPUT_TIME)?;
    // Before the plain traffic: it is too much for the sniffers, and no pod's.
    let accounts: Result<Vec<_>> = sniffers.into_iter().map(lab::Sniffer::finish).collect();
    measured.push(throughput::over_underlay(&cluster, THROUGHPUT_TIME)?);
    println!("\n{}", table::throughputs(&measured));

    let checks = Checks::of(&pairs, &accounts?);
    println!("{checks}\n");
    if keep {
        println!("{}", shell_commands::render(&cluster, &pods));
        interrupt.wait();
    }
    progress(start, "stopping");
    drop(cluster);
    drop(grounds);
    progress(start, "stopped");
    checks.result()
}
