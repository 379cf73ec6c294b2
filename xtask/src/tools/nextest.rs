//! cargo-nextest, built from source at one version.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::Result;
use lab::tools::cache_dir;

use crate::cargo::cargo;
use crate::process::run_with_retry;

pub(super) const VERSION: &str = "0.9.151";
pub(super) const BUILD_MINUTES: u32 = 2;

/// A `cargo nextest` command in the workspace.
pub(crate) fn nextest(args: &[&str]) -> Command {
    let cargo = cargo(&[]);
    let mut command = Command::new(program());
    command
        .arg("nextest")
        .args(args)
        .env("CARGO", cargo.get_program());
    if let Some(dir) = cargo.get_current_dir() {
        command.current_dir(dir);
    }
    command
}

/// Where the program is, if it is installed.
pub(super) fn program() -> PathBuf {
    dir().join("bin/cargo-nextest")
}

fn dir() -> PathBuf {
    cache_dir().join(format!("tools/cargo-nextest-{VERSION}"))
}

/// Builds it without optimisation, which halves the time: it starts processes and waits. The caller
/// holds the cache's lock.
pub(super) fn install_missing(start: Instant) -> Result<()> {
    if program().is_file() {
        return Ok(());
    }
    run_with_retry(start, "cargo-nextest", || {
        let mut command = cargo(&["install", "cargo-nextest", "--locked", "--debug"]);
        command
            .args(["--version", VERSION])
            .args(["--no-default-features", "--features", "default-no-update"])
            .arg("--root")
            .arg(dir())
            .env("CARGO_PROFILE_DEV_DEBUG", "false")
            .env_remove("CARGO_TARGET_DIR");
        command
    })
}
