//! Programs built from Go modules. The checksum database stays on: it pins what a version is.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};
use lab::tools::{GoModule, cache_dir, program_name};

use super::{fresh_dir, remove_dir};
use crate::run::{run_patiently, say};

/// Builds the programs of a module that the cache lacks. The caller holds the cache's lock.
pub(super) fn build_missing(start: Instant, module: &GoModule) -> Result<()> {
    let missing = module.missing();
    if missing.is_empty() {
        return Ok(());
    }
    let what = format!("{} {}", module.name, module.version);
    say(start, &format!("{what}: building {}", missing.join(" ")));

    let (fresh, bin) = (fresh_dir(&cache_dir())?, module.bin_dir());
    fs::create_dir_all(&bin).with_context(|| format!("make {}", bin.display()))?;

    go_found()?;
    run_patiently(start, &what, || go_install(module, &missing, &fresh))?;
    // One rename each: a test that looks meanwhile finds a whole program or none.
    for package in &missing {
        let name = program_name(package);
        fs::rename(fresh.join(name), bin.join(name))
            .with_context(|| format!("put {name} into {}", bin.display()))?;
    }
    remove_dir(&fresh)
}

fn go_found() -> Result<()> {
    Command::new("go")
        .arg("version")
        .output()
        .map(drop)
        .context("start go: the reference plugins are built from source; install Go 1.24 or newer")
}

fn go_install(module: &GoModule, packages: &[&str], into: &Path) -> Command {
    let mut command = Command::new("go");
    command.args(["install", "-trimpath", "-ldflags=-s -w"]);
    for package in packages {
        command.arg(format!("{}/{package}@{}", module.path, module.version));
    }
    // Whatever someone cross-compiles at the moment, tests run here.
    for variable in ["GOOS", "GOARCH", "GO111MODULE"] {
        command.env_remove(variable);
    }
    command
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off")
        .env("GOBIN", into)
        .current_dir(into);
    command
}
