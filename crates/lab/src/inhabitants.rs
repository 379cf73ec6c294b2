//! The processes of a node, which end with it.
//!
//! They are known by their UTS namespace: whoever is started in a node is in the node's, and so are
//! all descendants, whatever sessions, groups, networks and mounts of their own they have. Only a
//! container with a host name of its own is somebody else's.
//!
//! A process namespace would be the kernel's own way. But then processes have two numbers each,
//! `/proc` is right for either those inside or those who come in from outside, and a program could
//! no longer be entered by exec: entering such a namespace takes a fork.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, PidfdFlags, Signal};

/// The kernel lets go of a killed process in its own time.
const AFTER_KILL: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(2);

/// What the holder of a node runs. It says that it is there; then it waits for its owner's end, by
/// whatever signal that comes, and takes all others of the node along. Some may be on their way into
/// the node at that moment, hence several times. Nobody reads what it says by then, so it is silent.
///
/// Its argument is the name of a namespace in which it must not do so: its owner's.
pub(crate) const HOLD: &str = r#"
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

/// A node's UTS namespace.
#[derive(Debug)]
pub(crate) struct Home(PathBuf);

impl Home {
    /// The namespace of a process that must be in another one than this process.
    pub(crate) fn of(pid: u32) -> Result<Self> {
        let home = namespace_of(pid).with_context(|| format!("look where process {pid} is"))?;
        ensure!(home != own_namespace()?, "process {pid} is not in a node");
        Ok(Self(home))
    }

    /// Kills all who live there but `holder`, and returns when they are gone.
    pub(crate) fn clear(&self, holder: u32) {
        let end = Instant::now() + AFTER_KILL;
        while self.kill_all_but(holder) > 0 && Instant::now() < end {
            thread::sleep(PAUSE);
        }
    }

    fn kill_all_but(&self, holder: u32) -> usize {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        pids.filter(|pid| ![holder, process::id()].contains(pid))
            .filter(|pid| self.kill(*pid).is_some())
            .count()
    }

    /// Whether there was one to be killed. A zombie is in no namespace.
    fn kill(&self, pid: u32) -> Option<()> {
        let is_here = || namespace_of(pid).is_ok_and(|namespace| namespace == self.0);
        is_here().then_some(())?;
        // Between the look and the kill the number may pass to another process, but not so by this.
        let raw = Pid::from_raw(pid.try_into().ok()?)?;
        let pidfd = rustix::process::pidfd_open(raw, PidfdFlags::empty()).ok()?;
        is_here().then_some(())?;
        rustix::process::pidfd_send_signal(&pidfd, Signal::KILL).ok()
    }
}

/// The name of the namespace that this process is in.
pub(crate) fn own_namespace() -> Result<PathBuf> {
    namespace_of(process::id()).context("look at our own namespace")
}

fn namespace_of(pid: u32) -> std::io::Result<PathBuf> {
    fs::read_link(Path::new("/proc").join(pid.to_string()).join("ns/uts"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_namespace_is_no_node() {
        let error = Home::of(process::id()).unwrap_err();
        assert!(error.to_string().ends_with("is not in a node"), "{error}");
    }
}
