//! One call of a CNI plugin, as a runtime makes it, and what it cost.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::resource::{UsageWho, getrusage};
use serde_json::Value;

use super::sandbox::Pod;

/// What a call took, all its children included.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    pub(super) wall: Duration,
    pub(super) cpu: Duration,
}

/// A pod to attach, and with what.
pub(super) struct Call<'a> {
    pub(super) program: &'a Path,
    pub(super) config: &'a Value,
    pub(super) container: &'a str,
    pub(super) pod: &'a Pod,
}

impl Call<'_> {
    /// Makes the call, and nothing else meanwhile: the processor time of children is the sum of
    /// all. A plugin that fails is worth no measurement: it ends the run.
    pub(super) fn cost(&self, verb: &str) -> Result<Cost> {
        let used = cpu_of_children()?;
        let wall = self.wall(verb)?;
        let cpu = cpu_of_children()?.saturating_sub(used);
        Ok(Cost { wall, cpu })
    }

    /// Makes the call and tells how long it took.
    pub(super) fn wall(&self, verb: &str) -> Result<Duration> {
        let config = self.config.to_string();
        let start = Instant::now();
        let mut child = self.start(verb)?;
        feed(&mut child, &config);
        let output = child.wait_with_output()?;
        let wall = start.elapsed();
        self.judge(verb, output.status, &output.stdout, &output.stderr)?;
        Ok(wall)
    }

    /// Starts the plugin, which then waits for its configuration.
    pub(super) fn start(&self, verb: &str) -> Result<Child> {
        let mut command = Command::new(self.program);
        command
            .env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", self.container)
            .env("CNI_NETNS", &self.pod.netns)
            .env("CNI_IFNAME", "eth0")
            .env("CNI_PATH", &self.pod.search)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let program = self.program.display();
        command.spawn().with_context(|| format!("start {program}"))
    }

    /// Fails unless the plugin did what it was asked.
    fn judge(&self, verb: &str, status: ExitStatus, stdout: &[u8], stderr: &[u8]) -> Result<()> {
        let (program, out) = (self.program.display(), String::from_utf8_lossy(stdout));
        if !status.success() {
            let err = String::from_utf8_lossy(stderr);
            bail!("{verb} by {program}: {status}\n{out}{err}");
        }
        // Doing nothing is fast and must not pass for an attachment.
        if verb == "ADD" && !has_address(stdout) {
            bail!("ADD by {program} gave no address: {out:?}");
        }
        Ok(())
    }
}

/// Gives a plugin its configuration, whole.
pub(super) fn feed(child: &mut Child, config: &str) {
    if let Some(mut stdin) = child.stdin.take() {
        // A plugin that dies without reading is judged by its exit status.
        let _ = stdin.write_all(config.as_bytes());
    }
}

fn has_address(result: &[u8]) -> bool {
    let result: Value = serde_json::from_slice(result).unwrap_or_default();
    result["ips"].as_array().is_some_and(|ips| !ips.is_empty())
}

/// User and system time of all children that have been waited for, and of theirs.
pub(super) fn cpu_of_children() -> Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("read the usage of children")?;
    let (user, system) = (usage.user_time(), usage.system_time());
    let micros = (user.tv_sec() + system.tv_sec()) * 1_000_000 + user.tv_usec() + system.tv_usec();
    Ok(Duration::from_micros(micros.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_time_of_grandchildren_counts() {
        let before = cpu_of_children().unwrap();
        let loops = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
        let script = format!("sh -c '{loops}'; true");
        Command::new("sh").args(["-c", &script]).status().unwrap();
        let used = cpu_of_children().unwrap().saturating_sub(before);
        assert!(used > Duration::from_millis(2), "{used:?}");
    }
}
