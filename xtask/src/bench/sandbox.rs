//! Network and mount namespaces for a measurement; they end with the process.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

use super::call::timed;
use crate::cargo::target_dir;
use crate::privilege::run_as_root;

/// Runs this program again as root in new namespaces, with `args` and a directory for state.
pub(super) fn enter(args: &[&str]) -> Result<()> {
    let state = target_dir()?.join("bench-state");
    let this = env::current_exe().context("find this program")?;
    let mut command = Command::new("unshare");
    command
        .args(["--net", "--mount", "--propagation", "private"])
        .args(["sh", "-ec", PREPARE, "sh"])
        .arg(&state)
        .arg(this)
        .args(args)
        .arg(&state);
    run_as_root(command)
}

/// Makes the kernel end this process, which [`enter`] started, with its parent.
pub(super) fn end_with_parent() -> Result<()> {
    set_pdeathsig(Signal::SIGKILL).context("set the parent death signal")
}

/// Names of namespaces and locks of iptables are in `/run`. The overlays that a measurement mounts on
/// the state directory are gone when it is removed.
const PREPARE: &str = r#"
state=$1
shift
rm -rf "$state"
mkdir -p "$state"
mount -t tmpfs none /run
ip link set lo up
status=0
unshare --mount --propagation private "$@" || status=$?
rm -rf "$state"
exit $status
"#;

const NETNS_REMOVAL_TIMEOUT: Duration = Duration::from_secs(30);

/// A pod's network namespace.
pub(super) struct Pod {
    pub(super) nth: usize,
    pub(super) netns: PathBuf,
    /// `CNI_PATH`.
    pub(super) search: OsString,
}

impl Pod {
    pub(super) fn make(nth: usize, search: &OsStr) -> Result<Self> {
        let pod = Self::nth(nth, search);
        ip(&[format!("netns add {}", pod.name())])?;
        Ok(pod)
    }

    pub(super) fn make_all(numbers: Range<usize>, search: &OsStr) -> Result<Vec<Self>> {
        let pods: Vec<Self> = numbers.map(|nth| Self::nth(nth, search)).collect();
        let lines = pods.iter().map(|pod| format!("netns add {}", pod.name()));
        ip(&lines.collect::<Vec<_>>())?;
        Ok(pods)
    }

    /// Removes the namespaces and waits for the kernel, which does it in the background and would
    /// disturb the next measurement.
    pub(super) fn remove_all(pods: &[Self]) -> Result<()> {
        // A veth goes with the namespace of its peer.
        const WITNESS: &str = "hcwitness";
        let Some(last) = pods.last() else {
            return Ok(());
        };
        let peer = format!("peer name {WITNESS} netns {}", last.name());
        let mut lines = vec![format!("link add {WITNESS} type veth {peer}")];
        lines.extend(pods.iter().map(|pod| format!("netns del {}", pod.name())));
        ip(&lines)?;
        let start = Instant::now();
        while fs::read_to_string("/proc/net/dev")?.contains(WITNESS) {
            if start.elapsed() > NETNS_REMOVAL_TIMEOUT {
                bail!("the kernel has not removed a namespace within {NETNS_REMOVAL_TIMEOUT:?}");
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn nth(nth: usize, search: &OsStr) -> Self {
        Self {
            nth,
            netns: PathBuf::from(format!("/run/netns/pod{nth}")),
            search: search.to_owned(),
        }
    }

    fn name(&self) -> String {
        format!("pod{}", self.nth)
    }
}

fn ip(lines: &[String]) -> Result<()> {
    let mut command = Command::new("ip");
    command.args(["-batch", "-"]);
    let lines = lines.join("\n") + "\n";
    timed(command, &lines)
        .map(drop)
        .with_context(|| format!("ip -batch {lines:?}"))
}
