//! Namespaces in which a measurement may do what it likes. They end with the process, however
//! it ends.

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
use crate::run::is_root;

/// Runs this program again in namespaces of its own, with `args` and a directory for state.
pub(super) fn enter(args: &[&str]) -> Result<()> {
    if !is_root()? {
        bail!("a bench makes network namespaces, and only root may: run \"sudo make bench\"");
    }
    let state = target_dir()?.join("bench-state");
    if state.exists() {
        fs::remove_dir_all(&state).with_context(|| format!("clear {}", state.display()))?;
    }
    fs::create_dir_all(&state).with_context(|| format!("make {}", state.display()))?;
    let this = env::current_exe().context("find this program")?;
    let status = Command::new("unshare")
        .args([
            "--net",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-ec",
            PREPARE,
            "sh",
        ])
        .arg(this)
        .args(args)
        .arg(&state)
        .status()
        .context("start unshare")?;
    fs::remove_dir_all(&state).with_context(|| format!("clear {}", state.display()))?;
    if !status.success() {
        bail!("the bench ended with {status}");
    }
    Ok(())
}

/// Has the kernel end this process, which [`enter`] started, when the one that did ends.
pub(super) fn end_with_parent() -> Result<()> {
    set_pdeathsig(Signal::SIGKILL).context("ask for a signal at the parent's end")
}

/// A /run of our own: there the names of namespaces and the locks of iptables would lie.
const PREPARE: &str = r#"
mount -t tmpfs none /run
ip link set lo up
exec "$@"
"#;

/// How long the kernel may take to remove namespaces.
const PATIENCE: Duration = Duration::from_secs(30);

/// A pod, as far as a CNI plugin knows one.
pub(super) struct Pod {
    /// Its number; no two have the same.
    pub(super) nth: usize,
    /// Path of its network namespace.
    pub(super) netns: PathBuf,
    /// Where plugins are looked for.
    pub(super) search: OsString,
}

impl Pod {
    /// Makes the namespace of the nth pod.
    pub(super) fn make(nth: usize, search: &OsStr) -> Result<Self> {
        let pod = Self::nth(nth, search);
        ip(&[format!("netns add {}", pod.name())])?;
        Ok(pod)
    }

    /// Makes the namespaces of several pods.
    pub(super) fn make_all(numbers: Range<usize>, search: &OsStr) -> Result<Vec<Self>> {
        let pods: Vec<Self> = numbers.map(|nth| Self::nth(nth, search)).collect();
        let lines = pods.iter().map(|pod| format!("netns add {}", pod.name()));
        ip(&lines.collect::<Vec<_>>())?;
        Ok(pods)
    }

    /// Removes the namespaces of pods, and waits until the kernel has: it does so in the
    /// background, where it would be in the way of whatever is measured next.
    pub(super) fn remove_all(pods: &[Self]) -> Result<()> {
        // A link goes with the namespace that its peer is in.
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
            if start.elapsed() > PATIENCE {
                bail!("the kernel keeps a namespace that was removed");
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

/// Has `ip` do what the lines say.
fn ip(lines: &[String]) -> Result<()> {
    let mut command = Command::new("ip");
    command.args(["-batch", "-"]);
    let lines = lines.join("\n") + "\n";
    timed(command, &lines)
        .map(drop)
        .with_context(|| format!("ip, told to {lines:?}"))
}
