//! Debian packages, installed without letting them start anything.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::privilege::as_root;
use crate::process::{progress, run_with_retry};

/// Installs in a mount namespace that hides systemd, so that package scripts start or restart no
/// service. A `policy-rc.d` would do the same, but a killed run would leave it behind.
const INSTALL_WITHOUT_SYSTEMD: &str = r#"
if [ -d /run/systemd ]; then mount -t tmpfs none /run/systemd; fi
exec apt-get "$@"
"#;

/// The packages that are not installed.
pub(super) fn missing_packages(wanted: &[&'static str]) -> Result<Vec<&'static str>> {
    if wanted.is_empty() {
        return Ok(vec![]);
    }
    // It exits with 1 if any is unknown, and still prints the others.
    let listed = Command::new("dpkg-query")
        .args(["--show", "--showformat", "${db:Status-Abbrev} ${Package}\n"])
        .args(wanted)
        .output()
        .with_context(|| {
            format!(
                "start dpkg-query: the tools come from apt-get, so this needs Debian 12 or a system \
                 derived from it, with {}",
                wanted.join(" ")
            )
        })?;
    let listed = String::from_utf8_lossy(&listed.stdout);
    Ok(not_installed(wanted, &listed))
}

/// The abbreviation's first letter is the desired state, the second the actual one.
fn not_installed(wanted: &[&'static str], listed: &str) -> Vec<&'static str> {
    let installed: Vec<&str> = listed
        .lines()
        .filter(|line| line.get(1..2) == Some("i"))
        .filter_map(|line| line.split_whitespace().last())
        .collect();
    let lacks = |package: &&&str| !installed.contains(*package);
    wanted.iter().filter(lacks).copied().collect()
}

/// Installs what is missing, as root.
pub(super) fn install_missing(start: Instant, wanted: &[&'static str]) -> Result<()> {
    let missing = missing_packages(wanted)?;
    if missing.is_empty() {
        return Ok(());
    }
    update_lists(start);
    // Downloaded separately, because hiding systemd may hide its resolver too.
    let mut download = apt_get(&["install", "--download-only"]);
    download.args(&missing);
    run_as_root_with_retry(start, "apt-get download", download)?;
    let mut install = Command::new("unshare");
    install
        .args(["--mount", "--propagation", "private"])
        .args(["sh", "-ec", INSTALL_WITHOUT_SYSTEMD, "sh"])
        .args(OPTIONS)
        .args(["install", "--no-download"])
        .args(&missing)
        .env("DEBIAN_FRONTEND", "noninteractive")
        // For System V scripts, which ask for the run level.
        .env("RUNLEVEL", "1");
    run_as_root_with_retry(start, "apt-get install", install)?;
    let missing = missing_packages(wanted)?;
    if !missing.is_empty() {
        bail!(
            "apt-get succeeded, but dpkg does not list {}",
            missing.join(" ")
        );
    }
    Ok(())
}

fn run_as_root_with_retry(start: Instant, what: &str, command: Command) -> Result<()> {
    let command = as_root(command)?;
    run_with_retry(start, what, || copy(&command))
}

/// `Command` has no `Clone`.
fn copy(command: &Command) -> Command {
    let mut copy = Command::new(command.get_program());
    copy.args(command.get_args());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            copy.env(name, value);
        }
    }
    copy
}

/// Updates apt's package lists, if possible.
pub(super) fn update_lists(start: Instant) {
    let update = apt_get(&["update", "--error-on=any"]);
    // One of the machine's sources may be broken for good, and we may need nothing from it.
    if let Err(error) = run_as_root_with_retry(start, "apt-get update", update) {
        progress(start, &format!("using the old package lists: {error:#}"));
    }
}

/// `--no-remove`: a machine with Docker's own containerd must not lose it to Debian's.
const OPTIONS: &[&str] = &[
    "--quiet",
    "--quiet",
    "--yes",
    "--no-install-recommends",
    "--no-remove",
    "-oDpkg::Use-Pty=0",
    "-oDPkg::Lock::Timeout=300",
];

/// `apt-get` without questions.
pub(super) fn apt_get(args: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    command
        .args(OPTIONS)
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_and_unpacked_packages_are_missing() {
        let state = |name: &str| match name {
            "socat" => "rc ",
            "runc" => "hi ",
            "strace" => "iU ",
            _ => "ii ",
        };
        let wanted = ["runc", "nftables", "socat", "strace"];
        let lines: Vec<String> = wanted
            .iter()
            .map(|name| format!("{} {name}", state(name)))
            .collect();
        let listed = lines.join("\n");
        assert_eq!(not_installed(&wanted, &listed), ["socat", "strace"]);
    }
}
