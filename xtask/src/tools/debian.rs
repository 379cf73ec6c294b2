//! Debian packages, installed without letting them start anything.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::run::{is_root, run_patiently, say};

/// Installs in a mount namespace where no systemd is to be seen: package scripts start or
/// restart services only through it, and the host's own services must stay as they are. A
/// `policy-rc.d` would do the same, but a killed run would leave it behind.
const INSTALL_UNSEEN: &str = r#"
if [ -d /run/systemd ]; then mount -t tmpfs none /run/systemd; fi
exec apt-get "$@"
"#;

/// Those of these packages that are not installed.
pub(super) fn missing_packages(wanted: &[&'static str]) -> Result<Vec<&'static str>> {
    // It exits with 1 if any is unknown, and still prints the others.
    let listed = Command::new("dpkg-query")
        .args(["--show", "--showformat", "${db:Status-Abbrev} ${Package}\n"])
        .args(wanted)
        .output()
        .context("start dpkg-query: this needs Debian 12, or a system derived from it")?;
    let listed = String::from_utf8_lossy(&listed.stdout);
    Ok(not_installed(wanted, &listed))
}

/// The abbreviation's second letter is the state; the first is what somebody wants it to be.
fn not_installed(wanted: &[&'static str], listed: &str) -> Vec<&'static str> {
    let installed: Vec<&str> = listed
        .lines()
        .filter(|line| line.get(1..2) == Some("i"))
        .filter_map(|line| line.split_whitespace().last())
        .collect();
    let lacks = |package: &&&str| !installed.contains(*package);
    wanted.iter().filter(lacks).copied().collect()
}

/// Installs what is missing.
pub(super) fn install_missing(start: Instant, wanted: &[&'static str]) -> Result<()> {
    let missing = missing_packages(wanted)?;
    if missing.is_empty() {
        return Ok(());
    }
    say(start, &format!("debian: missing {}", missing.join(" ")));
    if !is_root()? {
        bail!(
            "installing packages needs root: run \"make tools\" as root once, \
             or install them yourself: apt-get install {}",
            missing.join(" ")
        );
    }
    update_lists(start);
    // Apart from the installation, because hiding systemd may hide its resolver too.
    run_patiently(start, "apt-get download", || {
        let mut command = apt_get(&["install", "--download-only"]);
        command.args(&missing);
        command
    })?;
    run_patiently(start, "apt-get install", || {
        let mut command = Command::new("unshare");
        command
            .args([
                "--mount",
                "--propagation",
                "private",
                "sh",
                "-ec",
                INSTALL_UNSEEN,
                "sh",
            ])
            .args(OPTIONS)
            .args(["install", "--no-download"])
            .args(&missing)
            .env("DEBIAN_FRONTEND", "noninteractive")
            // The same for systems of the older kind, whose scripts ask for the run level.
            .env("RUNLEVEL", "1");
        command
    })?;
    let missing = missing_packages(wanted)?;
    if !missing.is_empty() {
        bail!("apt-get went well, yet dpkg lacks {}", missing.join(" "));
    }
    Ok(())
}

/// Makes apt's lists of packages new, if that can be done.
pub(super) fn update_lists(start: Instant) {
    // A source of the machine's owner may be broken for good, and nothing of ours come from it.
    if let Err(error) = run_patiently(start, "apt-get update", || {
        apt_get(&["update", "--error-on=any"])
    }) {
        say(
            start,
            &format!("going on with the package lists there are: {error:#}"),
        );
    }
}

/// A machine with Docker's own containerd would lose it to Debian's, hence `--no-remove`: there
/// a person decides.
const OPTIONS: &[&str] = &[
    "--quiet",
    "--quiet",
    "--yes",
    "--no-install-recommends",
    "--no-remove",
    "-oDpkg::Use-Pty=0",
    "-oDPkg::Lock::Timeout=300",
];

/// `apt-get`, asking nothing and saying little.
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
    fn only_what_is_installed_now_counts() {
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
