//! A program of Kubernetes with a log file. It can be restarted.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use rustix::process::Signal;

use super::START;
use crate::netns::Netns;
use crate::process::{self, Running};
use crate::wait::eventually_slowly;

const LAST_LINES: usize = 20;

/// Drop kills it and waits, so that its directory can be removed.
#[derive(Debug)]
pub(super) struct Program {
    name: &'static str,
    path: PathBuf,
    args: Vec<OsString>,
    log: PathBuf,
    running: Option<Running>,
}

impl Program {
    /// Does not start it. Its log goes to `dir`.
    pub(super) fn new(dir: &Path, name: &'static str, path: PathBuf, args: Vec<OsString>) -> Self {
        Self {
            name,
            path,
            args,
            log: dir.join(format!("{name}.log")),
            running: None,
        }
    }

    pub(super) fn start(&mut self, place: &impl Netns) -> Result<()> {
        ensure!(self.running.is_none(), "{} runs already", self.name);
        // Running would hold the whole log in memory.
        let mut command = place.command("sh");
        command
            .args(["-c", "exec \"$@\" >>\"$0\" 2>&1"])
            .arg(&self.log)
            .arg(&self.path)
            .args(&self.args);
        self.running = Some(Running::spawn(&mut command, b"")?);
        Ok(())
    }

    pub(super) fn kill(&mut self) -> Result<()> {
        if let Some(running) = self.running.take() {
            running.kill_group();
            running.wait(process::DEADLINE)?;
        }
        Ok(())
    }

    pub(super) fn signal(&self, signal: Signal) {
        if let Some(running) = &self.running {
            running.signal(signal);
        }
    }

    /// Waits until `probe` returns something; fails early if the program has exited.
    pub(super) fn await_that<T>(
        &self,
        what: &str,
        mut probe: impl FnMut() -> Option<T>,
    ) -> Result<T> {
        let poll = || match probe() {
            Some(answer) => Some(Ok(answer)),
            None if self.has_exited() => Some(Err(anyhow!("{} has exited", self.name))),
            None => None,
        };
        eventually_slowly(START, what, poll)
            .flatten()
            .with_context(|| {
                format!(
                    "the log of {} ends with:\n{}",
                    self.name,
                    last_lines(&self.log())
                )
            })
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn has_exited(&self) -> bool {
        let dir = |running: &Running| Path::new("/proc").join(running.pid().to_string());
        self.running
            .as_ref()
            .is_none_or(|running| !dir(running).exists())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // An error cannot be returned here.
        let _ = self.kill();
    }
}

fn last_lines(log: &str) -> String {
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_the_last_lines_of_the_log() {
        assert_eq!(last_lines("one\ntwo\n"), "one\ntwo");
        let many: Vec<_> = (0..100).map(|line| line.to_string()).collect();
        let last = last_lines(&many.join("\n"));
        assert!(last.starts_with("80\n") && last.ends_with("\n99"), "{last}");
    }
}
