//! Root, for the steps that need it. Everything else runs as the calling user, so that the checkout
//! and the caches stay theirs.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, IsTerminal};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use lab::tools::{cache_dir, workspace_dir};

use crate::cargo::target_dir;
use crate::process::{is_in_path, run};

/// sudo resets the environment; these variables are passed on.
const PASSED_ON: &[&str] = &["CI", "HOME", "LANG", "NO_COLOR", "TERM", "TMPDIR"];
const PASSED_ON_PREFIXES: &[&str] = &["HEADCNI_", "INSTA_", "LC_", "NEXTEST_", "PROPTEST_", "RUST"];

/// Whether this process is root already.
pub(crate) fn is_root() -> Result<bool> {
    Ok(user()?.0 == 0)
}

/// User and group of this process.
fn user() -> Result<(u32, u32)> {
    let own = fs::metadata("/proc/self").context("read /proc/self")?;
    Ok((own.uid(), own.gid()))
}

/// Fails early, with a remedy, where root can't be had later or would damage the checkout.
pub(crate) fn require_root_available(target: &str) -> Result<()> {
    if !is_root()? {
        if !is_in_path("sudo") {
            bail!(
                "{target} needs root for network namespaces, and sudo is missing: \
                 as root, run \"apt-get install sudo\" and allow your user to use it"
            );
        }
        let can_sudo = Command::new("sudo")
            .args(["--non-interactive", "true"])
            .stderr(Stdio::null())
            .status();
        if !can_sudo.context("start sudo")?.success() {
            if !io::stdin().is_terminal() {
                bail!(
                    "{target} needs root, sudo asks for a password, and there is no terminal: \
                     run it in a terminal, or as root"
                );
            }
            eprintln!("{target} builds as you; sudo asks for your password where root is needed");
        }
        return Ok(());
    }
    let owner = fs::metadata(workspace_dir()).context("read the checkout")?;
    if owner.uid() != 0 && env::var_os("SUDO_UID").is_some() {
        bail!(
            "run \"{target}\" without sudo: it builds as you and calls sudo for the steps that need \
             root; files that root builds would break your next build"
        );
    }
    Ok(())
}

/// The same command as root: through sudo with an explicit environment, or as it is if this process
/// is root. Set the command's own environment before.
pub(crate) fn as_root(command: Command) -> Result<Command> {
    if is_root()? {
        return Ok(command);
    }
    let mut sudo = Command::new("sudo");
    sudo.args(["--", "env"]);
    for (name, value) in env::vars_os().filter(|(name, _)| is_passed_on(name)) {
        sudo.arg(assignment(&name, &value));
    }
    sudo.arg(assignment("PATH", root_path()));
    sudo.arg(assignment("HEADCNI_CACHE", cache_dir()));
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            sudo.arg(assignment(name, value));
        }
    }
    sudo.arg(command.get_program()).args(command.get_args());
    if let Some(dir) = command.get_current_dir() {
        sudo.current_dir(dir);
    }
    Ok(sudo)
}

/// The caller's `PATH`, which often lacks the directories of nft and ip.
fn root_path() -> OsString {
    let mut path = env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/local/sbin:/usr/sbin:/sbin");
    path
}

fn is_passed_on(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else {
        return false;
    };
    PASSED_ON.contains(&name)
        || PASSED_ON_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix))
        || name.to_ascii_lowercase().ends_with("_proxy")
}

fn assignment(name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> OsString {
    let mut text = name.as_ref().to_owned();
    text.push("=");
    text.push(value);
    text
}

/// Runs a command as root, then makes what it left in the checkout the caller's: test binaries write
/// snapshots and regression files beside their sources.
pub(crate) fn run_as_root(command: Command) -> Result<()> {
    let outcome = run(&mut as_root(command)?);
    if is_root()? {
        return outcome;
    }
    let (user, group) = user()?;
    let mut chown = Command::new("chown");
    chown
        .args(["--recursive", "--no-dereference", "--from=root"])
        .arg(format!("{user}:{group}"))
        .args(["crates", "xtask"].map(|dir| workspace_dir().join(dir)))
        .arg(target_dir()?);
    let returned = run(&mut as_root(chown)?);
    outcome.and(returned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_the_build_are_passed_on_and_others_are_not() {
        for name in ["HEADCNI_BIN_DIR", "RUST_BACKTRACE", "https_proxy", "LC_ALL"] {
            assert!(is_passed_on(name.as_ref()), "{name}");
        }
        for name in ["LD_PRELOAD", "SSH_AUTH_SOCK", "PYTHONPATH", "PATHS"] {
            assert!(!is_passed_on(name.as_ref()), "{name}");
        }
    }
}
