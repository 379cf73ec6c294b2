//! Programs built from Go modules. The checksum database stays on: it pins what a version is.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};
use lab::tools::{GoModule, cache_dir, program_name};
use serde_json::Value;

use super::{fresh_dir, remove_dir};
use crate::run::{output, run_patiently, say};

/// What the newest of the modules asks for. An older Go fetches that itself, if it may, or says so.
///
/// A module that names no version of Go counts as an old one, and gets its dependencies in other
/// versions than its authors chose: <https://go.dev/ref/mod#graph-pruning>
const GO_NEEDED: &str = "1.26.6";

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

    let module_dir = fresh.join("module");
    write_module(module, &module_dir)?;
    let build = || {
        take_checksums(start, &what, module, &module_dir)?;
        run_patiently(start, &what, || {
            go_build(module, &missing, &module_dir, &fresh)
        })
    };
    build().with_context(|| {
        let found = go_version().unwrap_or_else(|error| format!("here is none ({error:#})"));
        format!("build {what} from source: that needs Go {GO_NEEDED} or newer, {found}")
    })?;
    // One rename each: a test that looks meanwhile finds a whole program or none.
    for package in &missing {
        let name = program_name(package);
        fs::rename(fresh.join(name), bin.join(name))
            .with_context(|| format!("put {name} into {}", bin.display()))?;
    }
    remove_dir(&fresh)
}

fn go_version() -> Result<String> {
    let version = output(Command::new("go").args(["env", "GOVERSION"]))?;
    Ok(format!("here is {}", version.trim()))
}

/// A module that needs just the one to be built. `go install path@version` would ask for the list
/// of all versions, which not every proxy has; this way asks for nothing but the version.
fn write_module(module: &GoModule, dir: &Path) -> Result<()> {
    fs::create_dir(dir).with_context(|| format!("make {}", dir.display()))?;
    let path = dir.join("go.mod");
    File::create(&path)
        .and_then(|mut file| file.write_all(go_mod(module).as_bytes()))
        .with_context(|| format!("write {}", path.display()))
}

fn go_mod(module: &GoModule) -> String {
    format!(
        "module headcni.invalid/tools\n\ngo {GO_NEEDED}\n\nrequire {} {}\n",
        module.path, module.version
    )
}

/// Takes over the checksums that the module's authors have noted. The database pins those of the
/// module itself; it need not know all of its dependencies.
fn take_checksums(start: Instant, what: &str, module: &GoModule, within: &Path) -> Result<()> {
    let download = || {
        let mut command = Command::new("go");
        command.args(["mod", "download", "-json"]);
        command.arg(format!("{}@{}", module.path, module.version));
        command.env("GOWORK", "off").current_dir(within);
        command
    };
    run_patiently(start, what, download)?;
    let told: Value = serde_json::from_str(&output(&mut download())?)
        .with_context(|| format!("read where go has put {what}"))?;
    let dir = told["Dir"].as_str().context("go told no directory")?;
    let theirs = Path::new(dir).join("go.sum");
    if theirs.exists() {
        let text = fs::read(&theirs).with_context(|| format!("read {}", theirs.display()))?;
        // Go has added a line of its own, which goes on to hold.
        let path = within.join("go.sum");
        File::options()
            .create(true)
            .append(true)
            .open(&path)
            .and_then(|mut file| file.write_all(&text))
            .with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

fn go_build(module: &GoModule, packages: &[&str], within: &Path, into: &Path) -> Command {
    let mut command = Command::new("go");
    command.args(["build", "-mod=mod", "-trimpath"]);
    command.arg(format!("-ldflags={}", linker_flags(module)));
    // A directory: each program gets its own name in it.
    command.arg("-o").arg(into.join(""));
    for package in packages {
        command.arg(format!("{}/{package}", module.path));
    }
    // Whatever someone cross-compiles at the moment, tests run here.
    for variable in ["GOOS", "GOARCH", "GO111MODULE"] {
        command.env_remove(variable);
    }
    command
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off")
        .current_dir(within);
    command
}

fn linker_flags(module: &GoModule) -> String {
    let version = module.version.trim_start_matches('v');
    let stamp = |variable: &&str| format!(" -X {variable}={version}");
    let stamps = module.stamps.iter().map(stamp);
    "-s -w".to_owned() + &stamps.collect::<String>()
}

#[cfg(test)]
mod tests {
    use lab::tools::{CNI, TAILSCALE};

    use super::*;

    #[test]
    fn a_module_asks_for_one_version() {
        let lines = [
            "module headcni.invalid/tools",
            "",
            "go 1.26.6",
            "",
            "require github.com/containernetworking/cni v1.3.1",
        ];
        assert_eq!(go_mod(&CNI).lines().collect::<Vec<_>>(), lines);
    }

    #[test]
    fn programs_are_stripped_and_know_their_version_where_they_ask_for_it() {
        assert_eq!(linker_flags(&CNI), "-s -w");
        assert_eq!(
            linker_flags(&TAILSCALE),
            "-s -w -X tailscale.com/version.longStamp=1.102.5 \
             -X tailscale.com/version.shortStamp=1.102.5"
        );
    }
}
