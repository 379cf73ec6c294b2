//! Peak memory of a call.
//!
//! `ru_maxrss` of a child includes the parent's, because the kernel keeps the maximum across `execve`.
//! So the plugin is stopped at its exit and its `VmHWM` is read from `/proc`.

use std::fs;
use std::io::Read;

use anyhow::{Context, Result, bail};
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use super::call::{Call, feed};

/// Runs the plugin and returns its peak resident set in KiB.
pub(super) fn peak_kib(call: &Call<'_>, verb: &str) -> Result<u64> {
    let mut child = call.start(verb)?;
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    // It waits for its configuration.
    ptrace::seize(pid, Options::PTRACE_O_TRACEEXIT).context("trace a plugin")?;
    feed(&mut child, &call.config.to_string());
    let mut peak = None;
    loop {
        match waitpid(pid, None).context("wait for a traced plugin")? {
            WaitStatus::PtraceEvent(_, _, libc::PTRACE_EVENT_EXIT) => {
                let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
                peak = high_water_mark(&status);
                ptrace::cont(pid, None)?;
            }
            WaitStatus::PtraceEvent(..) => ptrace::cont(pid, None)?,
            WaitStatus::Stopped(_, signal) => ptrace::cont(pid, signal)?,
            WaitStatus::Exited(_, 0) => break,
            end => {
                let mut out = String::new();
                if let Some(mut stdout) = child.stdout.take() {
                    stdout.read_to_string(&mut out)?;
                }
                bail!("{verb} by {}: {end:?}\n{out}", call.program.display());
            }
        }
    }
    peak.context("no VmHWM in /proc")
}

fn high_water_mark(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_high_water_mark_is_read_from_a_real_status() {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        assert!(high_water_mark(&status).unwrap() > 100, "{status}");
        assert_eq!(
            high_water_mark("Name:\tx\nVmHWM:\t     840 kB\n"),
            Some(840)
        );
    }
}
