//! Ends the processes of a node.
//!
//! A process belongs to a node if it is in the node's UTS namespace. Descendants inherit that
//! namespace whatever session, process group, netns or mount namespace they move to; only a container
//! with its own host name leaves it.
//!
//! A PID namespace would let the kernel do this, but every process would then have two PIDs, `/proc`
//! would be wrong either inside or outside, and entering needs a fork instead of an exec.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, PidfdFlags, Signal};

/// The kernel reaps a killed process asynchronously.
const AFTER_KILL: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The shell script of a node's holder process. It blocks on stdin until the test process closes the
/// pipe, then kills every other process of the node. It repeats because a process may be entering
/// the node at that moment.
///
/// `$1` is the UTS namespace of the test process, where the script must never kill anything.
pub(crate) const HOLDER_SCRIPT: &str = r#"
read -r _ && echo here
read -r _
exec >/dev/null 2>&1
mine=$(readlink /proc/self/ns/uts) && [ "$mine" != "${1:?}" ] || exit
for _ in 1 2 3 4 5; do
    kill -9 $(find -H /proc/[0-9]*/ns/uts -maxdepth 0 -samefile /proc/self/ns/uts |
        cut -d / -f 3 | grep -vx $$)
    sleep 0.1
done
"#;

#[derive(Debug)]
pub(crate) struct UtsNamespace(PathBuf);

impl UtsNamespace {
    /// The UTS namespace of a process, which must not be that of this process.
    pub(crate) fn of(pid: u32) -> Result<Self> {
        let uts = namespace_of(pid).with_context(|| format!("read ns/uts of process {pid}"))?;
        ensure!(uts != own_namespace()?, "process {pid} is not in a node");
        Ok(Self(uts))
    }

    /// Kills every process in the namespace except `holder`, and waits until they are gone.
    pub(crate) fn kill_all(&self, holder: u32) {
        let end = Instant::now() + AFTER_KILL;
        while self.kill_once(holder) > 0 && Instant::now() < end {
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Returns how many processes were found.
    fn kill_once(&self, holder: u32) -> usize {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        pids.filter(|pid| ![holder, process::id()].contains(pid))
            .filter(|pid| self.kill(*pid).is_some())
            .count()
    }

    /// A zombie is in no namespace.
    fn kill(&self, pid: u32) -> Option<()> {
        let is_here = || namespace_of(pid).is_ok_and(|namespace| namespace == self.0);
        is_here().then_some(())?;
        // The pidfd pins the process, so a second check rules out a reused PID.
        let raw = Pid::from_raw(pid.try_into().ok()?)?;
        let pidfd = rustix::process::pidfd_open(raw, PidfdFlags::empty()).ok()?;
        is_here().then_some(())?;
        rustix::process::pidfd_send_signal(&pidfd, Signal::KILL).ok()
    }
}

pub(crate) fn own_namespace() -> Result<PathBuf> {
    namespace_of(process::id()).context("read our own ns/uts")
}

fn namespace_of(pid: u32) -> std::io::Result<PathBuf> {
    fs::read_link(Path::new("/proc").join(pid.to_string()).join("ns/uts"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_uts_namespace_is_refused() {
        let error = UtsNamespace::of(process::id()).unwrap_err();
        assert!(error.to_string().ends_with("is not in a node"), "{error}");
    }
}
