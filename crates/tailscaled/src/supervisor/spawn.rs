//! Starts tailscaled so that it outlives this process.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::TailscaledSpec;
use super::error::Error;
use super::process::Identity;

impl TailscaledSpec {
    /// Blocks for some milliseconds.
    pub(super) fn spawn(
        &self,
        variables: &BTreeMap<OsString, OsString>,
        log: Option<File>,
    ) -> Result<Identity, Error> {
        let failed = |source| Error::Spawn {
            program: self.program.clone(),
            source,
        };
        let (stdout, stderr) = match log {
            Some(log) => (log.try_clone().map_err(failed)?.into(), log.into()),
            None => (Stdio::null(), Stdio::null()),
        };
        let mut command = Command::new(&self.program);
        command
            .args(self.arguments())
            .env_clear()
            .envs(variables)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr)
            // Signals for our process group, such as Ctrl-C, must not reach it.
            .process_group(0);
        let mut child = match &self.netns {
            None => command.spawn().map_err(failed)?,
            Some(netns) => spawn_in(netns, &mut command)?.map_err(failed)?,
        };
        // The child is not reaped yet, so its pid is not reused.
        if let Some(identity) = Identity::of(child.id()) {
            return Ok(identity);
        }
        let status = child.wait().map_err(failed)?;
        let text = format!("it exited immediately with {status}: see its log");
        Err(failed(io::Error::other(text)))
    }
}

/// A child starts in the netns of its thread. Pool threads are reused, so this uses its own thread.
fn spawn_in(netns: &Path, command: &mut Command) -> Result<io::Result<Child>, Error> {
    let failed = |source| Error::Netns {
        path: netns.to_owned(),
        source,
    };
    let file = File::open(netns).map_err(failed)?;
    let inside = || {
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(command.spawn())
    };
    let outcome = thread::scope(|scope| scope.spawn(inside).join());
    match outcome {
        Ok(outcome) => outcome.map_err(failed),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}
