//! The whole of headcni on one machine: three nodes, one of them behind a NAT, over a real Headscale
//! and a real tailscaled each, and what their pods see of each other.
//!
//! All of it lives in namespaces that end with this process, however it ends. Nothing leads out of
//! them, and nothing is kept.

mod hints;
mod interrupt;
mod reach;
mod speed;
mod table;
mod verdict;

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use lab::scenario::{JOIN_TIMEOUT, MeshCluster, Site, Topology};

use crate::run::{is_root, say};
use crate::{dist, tools};
use interrupt::Interrupt;
use reach::Inhabitant;
use verdict::Verdict;

/// Marks the second start of this program, inside the namespaces.
const INSIDE: &str = "--inside";
const KEEP: &str = "--keep";

const SITES: [Site; 3] = [Site::Open, Site::Open, Site::BehindNat];
/// How long one throughput is measured.
const SPELL: Duration = Duration::from_secs(2);

/// The nodes have files and a network of their own; so has this program, because what it makes
/// besides would be left behind if it were killed.
const PREPARE: &str = r#"
mount -t tmpfs -o mode=1777 none /dev/shm
exec "$@"
"#;

/// Builds what is missing, then shows it. `--keep` leaves it up until it is interrupted.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        [INSIDE] => show(false),
        [INSIDE, KEEP] => show(true),
        [] | [KEEP] => enter(&words),
        _ => bail!("demo takes {KEEP}, not {words:?}"),
    }
}

fn enter(words: &[&str]) -> Result<()> {
    if !is_root()? {
        bail!("the demo makes network namespaces, and only root may: run \"sudo make demo\"");
    }
    tools::ensure_for_mesh()?;
    // Whoever names other binaries wants those shown.
    if env::var_os("HEADCNI_BIN_DIR").is_none() {
        dist::build()?;
    }
    let this = env::current_exe().context("find this program")?;
    // In its place, not beside it: whoever ends the one ends the other.
    let error = Command::new("unshare")
        .args(["--net", "--mount", "--propagation", "private"])
        .args(["sh", "-ec", PREPARE, "sh"])
        .arg(this)
        .args(["demo", INSIDE])
        .args(words)
        .env("TMPDIR", "/dev/shm")
        .exec();
    Err(error).context("start unshare")
}

#[expect(clippy::print_stdout, reason = "the tables are what a demo is run for")]
fn show(is_kept: bool) -> Result<()> {
    let interrupt = Interrupt::listen()?;
    let start = Instant::now();

    say(start, "three nodes, one of them behind a NAT");
    let grounds = Topology::new(&SITES)?;
    let sniffers = grounds.sniff()?;
    say(
        start,
        "Headscale, with a relay within and an authority of its own",
    );
    let mut cluster = MeshCluster::on(grounds.clone())?;
    say(start, "headcni-daemon on every node");
    for member in &mut cluster.nodes {
        member.start_daemon()?;
    }
    for member in &cluster.nodes {
        member.await_ready(JOIN_TIMEOUT)?;
        let networks = member.pod_cidrs().join(" and ");
        let name = member.node.name();
        say(start, &format!("{name} serves {networks}"));
    }
    cluster.await_routes()?;

    say(start, "two pods on every node, by CNI");
    let pods = Inhabitant::two_each(&cluster)?;
    say(start, "nodes look for direct paths to each other");
    reach::await_direct(&cluster, &pods);
    say(start, "every pod to every pod, by IPv4 and IPv6");
    let ways = reach::all(&cluster, &pods)?;
    println!("\n{}", table::ways(&ways));

    say(start, "how fast it is");
    let speeds = speed::over_mesh(&cluster, &pods, SPELL)?;
    // Plain traffic on the switch is too much to be looked at frame by frame, and is nobody's pod's.
    let accounts: Result<Vec<_>> = sniffers.into_iter().map(lab::Sniffer::finish).collect();
    let plain = speed::over_underlay(&cluster, SPELL)?;
    println!("\n{}", table::speeds(&[speeds, vec![plain]].concat()));

    let verdict = Verdict::of(&ways, &accounts?);
    println!("{verdict}\n");
    if is_kept {
        println!("{}", hints::text(&cluster, &pods));
        interrupt.wait();
    }
    say(start, "taking all of it down");
    drop(cluster);
    drop(grounds);
    say(start, "all has ended");
    verdict.conclude()
}
