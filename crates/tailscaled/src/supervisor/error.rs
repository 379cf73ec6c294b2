//! What can go wrong with a tailscaled of our own.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why there is no tailscaled.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of its state directory can't be used.
    #[error("{attempt} {}", .path.display())]
    File {
        /// What was tried.
        attempt: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// Somebody else starts or stops one, and does not come to an end.
    #[error(
        "another process has held {} for {waited:?}: end the other headcni-daemon",
        .path.display()
    )]
    Locked {
        /// The lock.
        path: PathBuf,
        /// How long we waited.
        waited: Duration,
    },
    /// Somebody whom we don't know listens where ours would.
    #[error(
        "start a tailscaled: {} listens at {} and was not started by headcni: end it, for two \
         would destroy each other's rules",
        who(*.pid),
        .socket.display()
    )]
    Taken {
        /// The socket.
        socket: PathBuf,
        /// The other process, unless it is out of sight.
        pid: Option<u32>,
    },
    /// The network namespace can't be entered.
    #[error("enter the network namespace {}", .path.display())]
    Namespace {
        /// Where it is.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The program can't be started.
    #[error("start {}: see that tailscaled is installed there", .program.display())]
    Spawn {
        /// The program.
        program: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The process can't be looked at or signalled.
    #[error("{attempt} process {pid} of tailscaled")]
    Process {
        /// What was tried.
        attempt: &'static str,
        /// The process.
        pid: u32,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It does not end, whatever it is told.
    #[error("process {pid} of tailscaled has not ended {waited:?} after SIGKILL")]
    Immortal {
        /// The process.
        pid: u32,
        /// How long we waited.
        waited: Duration,
    },
}

fn who(pid: Option<u32>) -> String {
    pid.map_or_else(
        || "another process".to_owned(),
        |pid| format!("process {pid}"),
    )
}

impl Error {
    pub(super) fn file<'a>(
        attempt: &'static str,
        path: &'a Path,
    ) -> impl Fn(io::Error) -> Self + 'a {
        move |source| Self::File {
            attempt,
            path: path.to_owned(),
            source,
        }
    }

    pub(super) fn process(attempt: &'static str, pid: u32) -> impl Fn(io::Error) -> Self {
        move |source| Self::Process {
            attempt,
            pid,
            source,
        }
    }
}
