//! Number of system calls of a command and its children.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use lab::with_clean_environment;

/// The same command under strace.
pub(super) fn into(log: &Path, command: &Command) -> Command {
    let mut traced = Command::new("strace");
    with_clean_environment(&mut traced)
        .args(["--follow-forks", "--quiet=all", "--signal=none"])
        .arg("--output-append-mode")
        .arg("--output")
        .arg(log)
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            traced.env(name, value);
        }
    }
    traced
}

pub(super) fn count(log: &Path) -> Result<usize> {
    let text = fs::read(log).with_context(|| format!("read {}", log.display()))?;
    Ok(calls(&String::from_utf8_lossy(&text)))
}

/// A call during which another process is scheduled has two lines.
fn calls(log: &str) -> usize {
    log.lines()
        .filter(|line| !line.contains("resumed>"))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resumed_call_counts_once() {
        let log = "7 read(0, <unfinished ...>\n8 close(3) = 0\n7 <... read resumed>\"\", 9) = 0\n";
        assert_eq!(calls(log), 2);
    }
}
