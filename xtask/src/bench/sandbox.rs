//! Namespaces in which a measurement may do what it likes. They end with the process, however
//! it ends.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cargo::target_dir;
use crate::run::{is_root, output};

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

/// A /run of our own: there the names of namespaces and the locks of iptables would lie.
const PREPARE: &str = r#"
mount -t tmpfs none /run
ip link set lo up
exec "$@"
"#;

/// A pod, as far as a CNI plugin knows one.
pub(super) struct Pod {
    /// Path of its network namespace.
    pub(super) netns: PathBuf,
    /// Where plugins are looked for.
    pub(super) search: OsString,
}

impl Pod {
    /// Makes the namespace of the nth pod.
    pub(super) fn make(nth: usize, search: &OsStr) -> Result<Self> {
        let name = format!("pod{nth}");
        output(Command::new("ip").args(["netns", "add", &name]))?;
        Ok(Self {
            netns: PathBuf::from("/run/netns").join(name),
            search: search.to_owned(),
        })
    }
}
