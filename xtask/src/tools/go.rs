//! Programs built from Go modules. The checksum database stays on: it pins what a version is.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};
use lab::tools::{GoModule, cache_dir};
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

    let fresh = fresh_dir(&cache_dir(), &what.replace(' ', "-"))?;
    let bin = module.bin_dir();
    fs::create_dir_all(&bin).with_context(|| format!("make {}", bin.display()))?;

    let build = || -> Result<()> {
        let module_dir = prepare(start, &what, module, &fresh)?;
        // One after the other: of what takes minutes, that which is done stays when the rest fails.
        for package in &missing {
            let name = module.program_of(package);
            let built = fresh.join(name);
            run_patiently(start, &format!("{what}: {name}"), || {
                go_build(module, package, &module_dir, &built)
            })?;
            // A test that looks meanwhile finds a whole program or none.
            fs::rename(&built, bin.join(name))
                .with_context(|| format!("put {name} into {}", bin.display()))?;
        }
        Ok(())
    };
    build().with_context(|| {
        let found = go_version().unwrap_or_else(|error| format!("here is none ({error:#})"));
        format!("build {what} from source: that needs Go {GO_NEEDED} or newer, {found}")
    })?;
    remove_dir(&fresh)
}

fn go_version() -> Result<String> {
    let version = output(Command::new("go").args(["env", "GOVERSION"]))?;
    Ok(format!("here is {}", version.trim()))
}

/// Makes a module of ours, in which the other one is built as a dependency.
fn prepare(start: Instant, what: &str, module: &GoModule, fresh: &Path) -> Result<PathBuf> {
    let dir = fresh.join("module");
    fs::create_dir(&dir).with_context(|| format!("make {}", dir.display()))?;
    put(&dir.join("go.mod"), &bare_go_mod())?;
    let theirs = download(start, what, module, &dir)?;
    let go_mod_path = theirs.join("go.mod");
    let their_go_mod = fs::read_to_string(&go_mod_path)
        .with_context(|| format!("read {}", go_mod_path.display()))?;
    put(&dir.join("go.mod"), &go_mod(module, &their_go_mod))?;
    take_checksums(&theirs, &dir)?;
    Ok(dir)
}

fn put(path: &Path, text: &str) -> Result<()> {
    File::create(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("write {}", path.display()))
}

fn bare_go_mod() -> String {
    format!("module headcni.invalid/tools\n\ngo {GO_NEEDED}\n")
}

/// A module that needs just the one to be built. `go install path@version` would ask for the list
/// of all versions, which not every proxy has, and refuses modules that replace others; this way asks
/// for nothing but the version.
fn go_mod(module: &GoModule, theirs: &str) -> String {
    let bare = bare_go_mod();
    let mut lines = vec![format!("require {} {}\n", module.path, module.version)];
    if let Some(version) = module.siblings {
        let replace = |sibling| format!("replace {sibling} => {sibling} {version}\n");
        lines.extend(siblings(theirs).map(replace));
    }
    format!("{bare}\n{}", lines.concat())
}

/// The modules that a `go.mod` takes from directories of its own repository.
fn siblings(go_mod: &str) -> impl Iterator<Item = &str> {
    go_mod.lines().filter_map(|line| {
        let (module, place) = line.split_once("=>")?;
        let module = module.trim().trim_start_matches("replace ");
        place.trim().starts_with('.').then_some(module)
    })
}

/// Fetches the module's files, and returns where they are.
fn download(start: Instant, what: &str, module: &GoModule, within: &Path) -> Result<PathBuf> {
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
    Ok(PathBuf::from(dir))
}

/// Takes over the checksums that the module's authors have noted. The database pins those of the
/// module itself; it need not know all of its dependencies.
fn take_checksums(theirs: &Path, within: &Path) -> Result<()> {
    let theirs = theirs.join("go.sum");
    if theirs.exists() {
        let text = fs::read(&theirs).with_context(|| format!("read {}", theirs.display()))?;
        // Go may have added lines of its own, which go on to hold.
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

fn go_build(module: &GoModule, package: &str, within: &Path, built: &Path) -> Command {
    let mut command = Command::new("go");
    command.args(["build", "-mod=mod", "-trimpath"]);
    command.arg(format!("-ldflags={}", linker_flags(module)));
    command.arg("-o").arg(built);
    command.arg(match package {
        "." => module.path.to_owned(),
        package => format!("{}/{package}", module.path),
    });
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
    let stamp = |stamp: &&str| format!(" -X {}", stamp.replace("{version}", version));
    let stamps = module.stamps.iter().map(stamp);
    "-s -w".to_owned() + &stamps.collect::<String>()
}

#[cfg(test)]
mod tests {
    use lab::tools::kubernetes::KUBERNETES;
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
        assert_eq!(go_mod(&CNI, "").lines().collect::<Vec<_>>(), lines);
    }

    #[test]
    fn modules_of_the_same_repository_come_in_their_published_version() {
        let theirs = "module k8s.io/kubernetes\n\nreplace (\n\
                      \tk8s.io/api => ./staging/src/k8s.io/api\n\
                      \texample.org/a => example.org/b v1.0.0\n)\n\
                      replace k8s.io/kms => ./staging/src/k8s.io/kms\n";
        let text = go_mod(&KUBERNETES, theirs);
        let replaced: Vec<_> = text
            .lines()
            .filter(|line| line.starts_with("replace"))
            .collect();
        let lines = [
            "replace k8s.io/api => k8s.io/api v0.37.1",
            "replace k8s.io/kms => k8s.io/kms v0.37.1",
        ];
        assert_eq!(replaced, lines);
        assert!(!go_mod(&CNI, theirs).contains("replace"));
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
