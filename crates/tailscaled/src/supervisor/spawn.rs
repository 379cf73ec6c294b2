//! Starting the process, so that it lives on without us.

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

use super::Tailscaled;
use super::error::Error;
use super::process::Identity;

impl Tailscaled {
    /// Starts it; blocks for some milliseconds.
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
            // What is sent to our group, as by Ctrl-C, is not meant for it.
            .process_group(0);
        let mut child = match &self.netns {
            None => command.spawn().map_err(failed)?,
            Some(netns) => spawn_in(netns, &mut command)?.map_err(failed)?,
        };
        // Nobody has waited for it yet, so the number is still its own.
        if let Some(identity) = Identity::of(child.id()) {
            return Ok(identity);
        }
        let end = child.wait().map_err(failed)?;
        let text = format!("it has ended at once, with {end}: see its log");
        Err(failed(io::Error::other(text)))
    }
}

/// A namespace is a thread's own, and children are born in that of their thread. Threads of a pool
/// are used again, so this takes one of its own.
fn spawn_in(netns: &Path, command: &mut Command) -> Result<io::Result<Child>, Error> {
    let failed = |source| Error::Namespace {
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
