//! A process by its number, and what `/proc` tells about it.

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

/// The thread that waits for an end does nothing else.
const STACK_BYTES: usize = 64 << 10;

/// Which process, for good: numbers are used again, but not at the same tick of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) pid: u32,
    /// Ticks from boot to its start: `starttime`, <https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html>.
    pub(super) started: u64,
}

impl Identity {
    /// The process that has this number now, unless it has ended.
    pub(super) fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (state, started) = state_and_start(&stat)?;
        // Ended, though nobody has asked how.
        let has_ended = ["Z", "X"].contains(&state);
        (!has_ended).then_some(Self { pid, started })
    }

    /// The process that has this number still, though it may have ended.
    fn even_ended(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, started) = state_and_start(&stat)?;
        Some(Self { pid, started })
    }

    /// Its command line.
    pub(super) fn arguments(self) -> io::Result<Vec<OsString>> {
        self.words("cmdline")
    }

    /// The environment that it was started with, as `NAME=value`.
    pub(super) fn environment(self) -> io::Result<Vec<OsString>> {
        self.words("environ")
    }

    /// The file that it runs, by device and inode.
    pub(super) fn program(self) -> io::Result<(u64, u64)> {
        inode(&self.file("exe"))
    }

    /// The network namespace that it is in, by device and inode.
    pub(super) fn netns(self) -> io::Result<(u64, u64)> {
        inode(&self.file("ns/net"))
    }

    fn words(self, name: &str) -> io::Result<Vec<OsString>> {
        let text = fs::read(self.file(name))?;
        let words = text.split(|byte| *byte == 0);
        let mut words: Vec<_> = words
            .map(|word| OsString::from_vec(word.to_vec()))
            .collect();
        // There is a zero after the last one, too.
        words.pop();
        Ok(words)
    }

    fn file(self, name: &str) -> PathBuf {
        format!("/proc/{}/{name}", self.pid).into()
    }
}

/// Which file this is.
pub(super) fn inode(path: &Path) -> io::Result<(u64, u64)> {
    let found = fs::metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// Fields 3 and 22. The second one is the name, which can have anything in it.
fn state_and_start(stat: &str) -> Option<(&str, u64)> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let state = fields.next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

/// All processes.
pub(super) fn all() -> io::Result<Vec<Identity>> {
    let entries = fs::read_dir("/proc")?;
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(numbers.filter_map(Identity::of).collect())
}

/// A process that is held on to: what is done to it is done to no other one.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) identity: Identity,
    pidfd: Arc<OwnedFd>,
    ended: watch::Receiver<bool>,
    /// Once this is closed, nobody wants to know of the end any more.
    _interest: PipeWriter,
}

impl Process {
    /// Takes hold of a process. None if it has ended.
    pub(super) fn hold(identity: Identity) -> io::Result<Option<Self>> {
        let raw = i32::try_from(identity.pid).ok().and_then(Pid::from_raw);
        let Some(pid) = raw else {
            return Ok(None);
        };
        let pidfd = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => Arc::new(pidfd),
            Err(Errno::SRCH) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // Between the look and the hold, the number may have gone to another one, or it has ended: a
        // child of ours would stay as a zombie.
        if Identity::of(identity.pid) != Some(identity) {
            if Identity::even_ended(identity.pid) == Some(identity) {
                reap(&pidfd);
            }
            return Ok(None);
        }
        let (disinterest, interest) = io::pipe()?;
        let (sender, ended) = watch::channel(false);
        let waited_for = Arc::clone(&pidfd);
        thread::Builder::new()
            .name("tailscaled-end".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                if has_ended(&waited_for, &disinterest) {
                    sender.send_replace(true);
                }
            })?;
        Ok(Some(Self {
            identity,
            pidfd,
            ended,
            _interest: interest,
        }))
    }

    /// Waits for its end; for how it ended, if it is our child. Nothing is lost if this is
    /// cancelled.
    pub(super) async fn ended(&self) -> io::Result<Option<String>> {
        let mut ended = self.ended.clone();
        let seen = ended.wait_for(|has_ended| *has_ended).await;
        seen.map_err(|_| io::Error::other("the kernel does not tell of its end"))?;
        Ok(reap(&self.pidfd))
    }

    /// The same, if it comes in time.
    pub(super) async fn ended_within(&self, limit: Duration) -> io::Result<bool> {
        match timeout(limit, self.ended()).await {
            Ok(end) => end.map(|_| true),
            Err(_) => Ok(false),
        }
    }

    pub(super) fn signal(&self, signal: Signal) -> io::Result<()> {
        match rustix::process::pidfd_send_signal(&self.pidfd, signal) {
            // It has ended, which is what signals are for.
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// A child of ours would stay as a zombie; one of an earlier daemon is somebody else's.
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

/// Waits for the end of a process, or of the interest in it; blocks.
fn has_ended(pidfd: &OwnedFd, disinterest: &PipeReader) -> bool {
    loop {
        let mut sources = [
            PollFd::new(pidfd, PollFlags::IN),
            PollFd::new(disinterest, PollFlags::IN),
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
    fn the_start_is_found_behind_any_name() {
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
    fn this_process_is_among_all() {
        let own = Identity::of(std::process::id()).unwrap();
        assert!(all().unwrap().contains(&own));
        let arguments: Vec<OsString> = std::env::args_os().collect();
        assert_eq!(own.arguments().unwrap(), arguments);
    }

    #[expect(
        clippy::zombie_processes,
        reason = "that there is none is what is shown"
    )]
    #[tokio::test]
    async fn the_end_of_a_child_is_seen_and_leaves_no_zombie() {
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        let identity = Identity::of(child.id()).unwrap();
        let process = Process::hold(identity).unwrap().unwrap();
        assert!(
            !process
                .ended_within(Duration::from_millis(1))
                .await
                .unwrap()
        );
        process.signal(Signal::KILL).unwrap();
        assert_eq!(process.ended().await.unwrap().as_deref(), Some("signal 9"));
        assert!(!Path::new(&format!("/proc/{}", identity.pid)).exists());
        process.signal(Signal::KILL).unwrap();
        assert!(Process::hold(identity).unwrap().is_none());
    }

    #[expect(
        clippy::zombie_processes,
        reason = "that there is none is what is shown"
    )]
    #[test]
    fn a_child_that_ends_before_it_is_held_leaves_no_zombie() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let identity = Identity::of(child.id()).unwrap();
        child.kill().unwrap();
        // It has ended, and is still there for whoever asks how.
        let pid = Pid::from_child(&child);
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        rustix::process::waitid(WaitId::Pid(pid), options).unwrap();
        assert_eq!(Identity::of(identity.pid), None);
        assert_eq!(Identity::even_ended(identity.pid), Some(identity));
        assert!(Process::hold(identity).unwrap().is_none());
        assert!(!Path::new(&format!("/proc/{}", identity.pid)).exists());
    }

    #[tokio::test]
    async fn a_number_with_another_start_is_another_process() {
        let mut identity = Identity::of(std::process::id()).unwrap();
        identity.started += 1;
        assert!(Process::hold(identity).unwrap().is_none());
    }
}
