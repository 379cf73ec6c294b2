//! A process, identified by pid and start time, and its files in `/proc`.

use std::ffi::OsString;
use std::fs;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};
use tokio::sync::watch;
use tokio::time::timeout;

/// The thread only waits for the process to exit.
const STACK_BYTES: usize = 64 << 10;

/// Pids are reused, but not with the same start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) pid: u32,
    /// `starttime` in clock ticks since boot: <https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html>.
    pub(super) started: u64,
}

impl Identity {
    /// The process with this pid, unless it has exited.
    pub(super) fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (state, started) = state_and_start(&stat)?;
        let has_exited = ["Z", "X"].contains(&state);
        (!has_exited).then_some(Self { pid, started })
    }

    /// The same, including zombies.
    fn of_any_state(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, started) = state_and_start(&stat)?;
        Some(Self { pid, started })
    }

    pub(super) fn arguments(self) -> io::Result<Vec<OsString>> {
        self.read_list("cmdline")
    }

    /// The initial environment, as `NAME=value`.
    pub(super) fn environment(self) -> io::Result<Vec<OsString>> {
        self.read_list("environ")
    }

    /// The executable, by device and inode.
    pub(super) fn program(self) -> io::Result<(u64, u64)> {
        inode(&self.file("exe"))
    }

    /// The netns, by device and inode.
    pub(super) fn netns(self) -> io::Result<(u64, u64)> {
        inode(&self.file("ns/net"))
    }

    fn read_list(self, name: &str) -> io::Result<Vec<OsString>> {
        let text = fs::read(self.file(name))?;
        let mut items: Vec<_> = text
            .split(|byte| *byte == 0)
            .map(|item| OsString::from_vec(item.to_vec()))
            .collect();
        // The last item ends with a zero byte too.
        items.pop();
        Ok(items)
    }

    fn file(self, name: &str) -> PathBuf {
        format!("/proc/{}/{name}", self.pid).into()
    }
}

/// Device and inode of a file.
pub(super) fn inode(path: &Path) -> io::Result<(u64, u64)> {
    let found = fs::metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// Fields 3 and 22. Field 2 is the name, which may contain spaces and brackets.
fn state_and_start(stat: &str) -> Option<(&str, u64)> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let state = fields.next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

pub(super) fn all() -> io::Result<Vec<Identity>> {
    let entries = fs::read_dir("/proc")?;
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(numbers.filter_map(Identity::of).collect())
}

/// A pidfd, so that signals reach no other process.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) identity: Identity,
    pidfd: Arc<OwnedFd>,
    exited: watch::Receiver<bool>,
    /// Closing it stops the waiting thread.
    _cancel: PipeWriter,
}

impl Process {
    /// `None` if the process has exited.
    pub(super) fn open(identity: Identity) -> io::Result<Option<Self>> {
        let raw = i32::try_from(identity.pid).ok().and_then(Pid::from_raw);
        let Some(pid) = raw else {
            return Ok(None);
        };
        let pidfd = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => Arc::new(pidfd),
            Err(Errno::SRCH) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // The pid may have been reused before pidfd_open, or the process has exited: if it is a child, it
        // would stay a zombie.
        if Identity::of(identity.pid) != Some(identity) {
            if Identity::of_any_state(identity.pid) == Some(identity) {
                reap(&pidfd);
            }
            return Ok(None);
        }
        let (cancelled, cancel) = io::pipe()?;
        let (sender, exited) = watch::channel(false);
        let watched = Arc::clone(&pidfd);
        thread::Builder::new()
            .name("tailscaled-exit".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                if wait_for_exit(&watched, &cancelled) {
                    sender.send_replace(true);
                }
            })?;
        Ok(Some(Self {
            identity,
            pidfd,
            exited,
            _cancel: cancel,
        }))
    }

    /// Waits until the process exits. Returns its exit status if it is a child. Cancel-safe.
    pub(super) async fn exited(&self) -> io::Result<Option<String>> {
        let mut exited = self.exited.clone();
        let result = exited.wait_for(|has_exited| *has_exited).await;
        result.map_err(|_| io::Error::other("failed to poll the pidfd"))?;
        Ok(reap(&self.pidfd))
    }

    pub(super) async fn exited_within(&self, limit: Duration) -> io::Result<bool> {
        match timeout(limit, self.exited()).await {
            Ok(exit) => exit.map(|_| true),
            Err(_) => Ok(false),
        }
    }

    pub(super) fn signal(&self, signal: Signal) -> io::Result<()> {
        match rustix::process::pidfd_send_signal(&self.pidfd, signal) {
            // It has exited already.
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Reaps a child; an adopted process has another parent.
fn reap(pidfd: &OwnedFd) -> Option<String> {
    let id = WaitId::PidFd(pidfd.as_fd());
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    let status = rustix::process::waitid(id, options).ok()??;
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Some(format!("exit status {code}")),
        (_, Some(signal)) => Some(format!("signal {signal}")),
        _ => None,
    }
}

/// Blocks until the process exits (true) or the wait is cancelled (false).
fn wait_for_exit(pidfd: &OwnedFd, cancelled: &PipeReader) -> bool {
    loop {
        let mut sources = [
            PollFd::new(pidfd, PollFlags::IN),
            PollFd::new(cancelled, PollFlags::IN),
        ];
        match poll(&mut sources, None) {
            Ok(_) if !sources[0].revents().is_empty() => return true,
            Ok(_) if !sources[1].revents().is_empty() => return false,
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_start_time_is_found_after_any_process_name() {
        let rest = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20";
        let found = |stat: &str| state_and_start(stat).map(|(state, at)| (state.to_owned(), at));
        for state in ["S", "Z"] {
            let stat = format!("42 (a) b) {state} {rest}");
            assert_eq!(found(&stat), Some((state.to_owned(), 777)));
        }
        assert_eq!(found("42 (a) S 1 2"), None);
        assert_eq!(found(""), None);
    }

    #[test]
    fn the_process_list_contains_this_process() {
        let own = Identity::of(std::process::id()).unwrap();
        assert!(all().unwrap().contains(&own));
        let arguments: Vec<OsString> = std::env::args_os().collect();
        assert_eq!(own.arguments().unwrap(), arguments);
    }

    #[expect(clippy::zombie_processes, reason = "the test checks that none is left")]
    #[tokio::test]
    async fn the_exit_of_a_child_is_reported_and_leaves_no_zombie() {
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        let identity = Identity::of(child.id()).unwrap();
        let process = Process::open(identity).unwrap().unwrap();
        assert!(
            !process
                .exited_within(Duration::from_millis(1))
                .await
                .unwrap()
        );
        process.signal(Signal::KILL).unwrap();
        assert_eq!(process.exited().await.unwrap().as_deref(), Some("signal 9"));
        assert!(!Path::new(&format!("/proc/{}", identity.pid)).exists());
        process.signal(Signal::KILL).unwrap();
        assert!(Process::open(identity).unwrap().is_none());
    }

    #[expect(clippy::zombie_processes, reason = "the test checks that none is left")]
    #[test]
    fn a_child_that_exits_before_it_is_opened_leaves_no_zombie() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let identity = Identity::of(child.id()).unwrap();
        child.kill().unwrap();
        // Wait until it is a zombie.
        let pid = Pid::from_child(&child);
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        rustix::process::waitid(WaitId::Pid(pid), options).unwrap();
        assert_eq!(Identity::of(identity.pid), None);
        assert_eq!(Identity::of_any_state(identity.pid), Some(identity));
        assert!(Process::open(identity).unwrap().is_none());
        assert!(!Path::new(&format!("/proc/{}", identity.pid)).exists());
    }

    #[tokio::test]
    async fn a_pid_with_another_start_time_is_another_process() {
        let mut identity = Identity::of(std::process::id()).unwrap();
        identity.started += 1;
        assert!(Process::open(identity).unwrap().is_none());
    }
}
