//! One call of a CNI plugin, as a runtime makes it, and its cost.

use std::convert::identity;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use lab::with_clean_environment;
use nix::sys::resource::{UsageWho, getrusage};
use serde_json::Value;

use super::sandbox::Pod;

/// Cost of a call, including its child processes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    pub(super) wall: Duration,
    pub(super) cpu: Duration,
}

pub(super) struct Call<'a> {
    pub(super) program: &'a Path,
    pub(super) config: &'a Value,
    pub(super) container: &'a str,
    pub(super) pod: &'a Pod,
}

impl Call<'_> {
    pub(super) fn cost(&self, verb: &str) -> Result<Cost> {
        cost_of(|| self.wall(verb))
    }

    pub(super) fn wall(&self, verb: &str) -> Result<Duration> {
        Ok(self.result(verb, identity)?.0)
    }

    /// Runs the plugin's command, wrapped by `wrap`; returns the time and the plugin's result.
    pub(super) fn result(
        &self,
        verb: &str,
        wrap: impl Fn(Command) -> Command,
    ) -> Result<(Duration, Value)> {
        let program = self.program.display();
        let (wall, stdout) = timed(wrap(self.command(verb)), &self.config.to_string())
            .with_context(|| format!("{verb} by {program}"))?;
        let result: Value = serde_json::from_str(&stdout).unwrap_or_default();
        // A plugin that does nothing would be fast.
        let has_address = result["ips"].as_array().is_some_and(|ips| !ips.is_empty());
        if verb == "ADD" && !has_address {
            bail!("ADD by {program} returned no address: {stdout:?}");
        }
        Ok((wall, result))
    }

    /// Starts the plugin; it waits for its configuration.
    pub(super) fn start(&self, verb: &str) -> Result<Child> {
        start(&mut self.command(verb))
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(self.program);
        with_clean_environment(&mut command)
            .env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", self.container)
            .env("CNI_NETNS", &self.pod.netns)
            .env("CNI_IFNAME", "eth0")
            .env("CNI_PATH", &self.pod.search);
        command
    }
}

/// Cost of `work`, which returns its wall time. No other child may run meanwhile: the kernel sums the CPU
/// time of all children.
pub(super) fn cost_of(work: impl FnOnce() -> Result<Duration>) -> Result<Cost> {
    let used = cpu_of_children()?;
    let wall = work()?;
    let cpu = cpu_of_children()?.saturating_sub(used);
    Ok(Cost { wall, cpu })
}

/// Runs a command; returns its wall time and standard output, or fails if it fails.
pub(super) fn timed(mut command: Command, input: &str) -> Result<(Duration, String)> {
    let begin = Instant::now();
    let mut child = start(&mut command)?;
    feed(&mut child, input);
    let output = child.wait_with_output()?;
    let wall = begin.elapsed();
    let (out, err) = (output.stdout, output.stderr);
    let out = String::from_utf8_lossy(&out).into_owned();
    if !output.status.success() {
        let err = String::from_utf8_lossy(&err);
        bail!("{}\n{out}{err}", output.status);
    }
    Ok((wall, out))
}

fn start(command: &mut Command) -> Result<Child> {
    let program = command.get_program().display().to_string();
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {program}"))
}

/// Writes a plugin's configuration to its standard input.
pub(super) fn feed(child: &mut Child, config: &str) {
    if let Some(mut stdin) = child.stdin.take() {
        // If the plugin dies without reading, its exit status tells.
        let _ = stdin.write_all(config.as_bytes());
    }
}

/// User and system time of all children that were waited for, and of theirs.
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
