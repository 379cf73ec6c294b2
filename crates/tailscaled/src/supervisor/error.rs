//! What can go wrong with a supervised tailscaled.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to {action} {}", .path.display())]
    File {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "another process has locked {} for {waited:?}: stop the other headcni-daemon",
        .path.display()
    )]
    Locked { path: PathBuf, waited: Duration },
    #[error(
        "failed to start tailscaled: {} listens on {} and was not started by headcni: stop it, because \
         two tailscaleds destroy each other's rules",
        process_name(*.pid),
        .socket.display()
    )]
    SocketInUse {
        socket: PathBuf,
        /// `None` if the process is in another PID namespace.
        pid: Option<u32>,
    },
    #[error("failed to enter the netns {}", .path.display())]
    Netns {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("failed to start {}: check that tailscaled is installed there", .program.display())]
    Spawn {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("failed to {action} tailscaled process {pid}")]
    Process {
        action: &'static str,
        pid: u32,
        #[source]
        source: io::Error,
    },
    #[error("tailscaled process {pid} is still running {waited:?} after SIGKILL")]
    StillRunning { pid: u32, waited: Duration },
}

fn process_name(pid: Option<u32>) -> String {
    pid.map_or_else(
        || "another process".to_owned(),
        |pid| format!("process {pid}"),
    )
}

impl Error {
    pub(super) fn file<'a>(
        action: &'static str,
        path: &'a Path,
    ) -> impl Fn(io::Error) -> Self + 'a {
        move |source| Self::File {
            action,
            path: path.to_owned(),
            source,
        }
    }

    pub(super) fn process(action: &'static str, pid: u32) -> impl Fn(io::Error) -> Self {
        move |source| Self::Process {
            action,
            pid,
            source,
        }
    }
}
