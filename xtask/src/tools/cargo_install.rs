//! Cargo subcommands, built from source at one version.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::Result;
use lab::tools::cache_dir;

use crate::cargo::cargo;
use crate::process::run_with_retry;

/// A cargo subcommand that is installed into the cache.
pub(super) struct CargoTool {
    pub(super) name: &'static str,
    pub(super) version: &'static str,
    options: &'static [&'static str],
}

pub(super) const NEXTEST: CargoTool = CargoTool {
    name: "cargo-nextest",
    version: "0.9.151",
    options: &["--no-default-features", "--features", "default-no-update"],
};

pub(super) const DENY: CargoTool = CargoTool {
    name: "cargo-deny",
    version: "0.20.2",
    options: &[],
};

/// A `cargo nextest` command in the workspace.
pub(crate) fn nextest(args: &[&str]) -> Command {
    NEXTEST.command("nextest", args)
}

/// A `cargo deny` command in the workspace.
pub(crate) fn deny(args: &[&str]) -> Command {
    DENY.command("deny", args)
}

impl CargoTool {
    pub(super) fn is_installed(&self) -> bool {
        self.program().is_file()
    }

    /// Builds it without optimisation, which halves the time. The caller holds the cache's lock.
    pub(super) fn install_missing(&self, start: Instant) -> Result<()> {
        if self.is_installed() {
            return Ok(());
        }
        run_with_retry(start, self.name, || {
            let mut command = cargo(&["install", self.name, "--locked", "--debug"]);
            command
                .args(["--version", self.version])
                .args(self.options)
                .arg("--root")
                .arg(self.dir())
                .env("CARGO_PROFILE_DEV_DEBUG", "false")
                .env_remove("CARGO_TARGET_DIR");
            command
        })
    }

    /// Runs without cargo in between, so that root needs none.
    fn command(&self, subcommand: &str, args: &[&str]) -> Command {
        let cargo = cargo(&[]);
        let mut command = Command::new(self.program());
        command.arg(subcommand).args(args);
        command.env("CARGO", cargo.get_program());
        if let Some(dir) = cargo.get_current_dir() {
            command.current_dir(dir);
        }
        command
    }

    fn program(&self) -> PathBuf {
        self.dir().join("bin").join(self.name)
    }

    fn dir(&self) -> PathBuf {
        cache_dir().join(format!("tools/{}-{}", self.name, self.version))
    }
}
