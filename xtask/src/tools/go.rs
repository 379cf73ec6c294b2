//! Programs built from Go modules. The checksum database stays on: it pins the contents of a version.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};
use lab::tools::{GoModule, cache_dir};
use serde_json::Value;

use super::{create_work_dir, remove_dir};
use crate::process::{output, progress, run_with_retry};

/// Required by the newest of the modules. An older Go downloads it, unless `GOTOOLCHAIN` forbids that.
///
/// Our `go.mod` must name a version, or Go resolves dependencies to other versions than upstream's: <https://go.dev/ref/mod#graph-pruning>
pub(super) const GO_NEEDED: &str = "1.26.6";

/// Builds the programs of a module that the cache lacks. The caller holds the cache's lock.
pub(super) fn build_missing(start: Instant, module: &GoModule) -> Result<()> {
    let missing = module.missing();
    if missing.is_empty() {
        return Ok(());
    }
    let what = format!("{} {}", module.name, module.version);
    progress(start, &format!("{what}: building {}", missing.join(" ")));

    let work = create_work_dir(&cache_dir(), &what.replace(' ', "-"))?;
    let bin = module.bin_dir();
    fs::create_dir_all(&bin).with_context(|| format!("create {}", bin.display()))?;

    let build = || -> Result<()> {
        let module_dir = prepare(start, &what, module, &work)?;
        // One after the other: a failure keeps the programs that are complete.
        for package in &missing {
            let name = module.program_of(package);
            let built = work.join(name);
            run_with_retry(start, &format!("{what}: {name}"), || {
                go_build(module, package, &module_dir, &built)
            })?;
            // Atomic: a test finds the complete program or none.
            fs::rename(&built, bin.join(name))
                .with_context(|| format!("put {name} into {}", bin.display()))?;
        }
        Ok(())
    };
    build().with_context(|| {
        let found = go_version().unwrap_or_else(|error| format!("Go is missing ({error:#})"));
        format!("build {what} from source: that needs Go {GO_NEEDED} or newer, {found}")
    })?;
    remove_dir(&work)
}

fn go_version() -> Result<String> {
    let version = output(Command::new("go").args(["env", "GOVERSION"]))?;
    Ok(format!("this is {}", version.trim()))
}

/// Creates a module of our own that has the other one as its dependency.
fn prepare(start: Instant, what: &str, module: &GoModule, work: &Path) -> Result<PathBuf> {
    let dir = work.join("module");
    fs::create_dir(&dir).with_context(|| format!("create {}", dir.display()))?;
    write(&dir.join("go.mod"), &bare_go_mod())?;
    let theirs = download(start, what, module, &dir)?;
    let go_mod_path = theirs.join("go.mod");
    let their_go_mod = fs::read_to_string(&go_mod_path)
        .with_context(|| format!("read {}", go_mod_path.display()))?;
    write(&dir.join("go.mod"), &go_mod(module, &their_go_mod))?;
    append_checksums(&theirs, &dir)?;
    Ok(dir)
}

fn write(path: &Path, text: &str) -> Result<()> {
    File::create(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("write {}", path.display()))
}

fn bare_go_mod() -> String {
    format!("module headcni.invalid/tools\n\ngo {GO_NEEDED}\n")
}

/// A module that requires just the one to be built. `go install path@version` would ask for the list
/// of all versions, which not every proxy has, and refuses modules with `replace` directives.
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

/// Downloads the module's files and returns their directory.
fn download(start: Instant, what: &str, module: &GoModule, within: &Path) -> Result<PathBuf> {
    let download = || {
        let mut command = Command::new("go");
        command.args(["mod", "download", "-json"]);
        command.arg(format!("{}@{}", module.path, module.version));
        command.env("GOWORK", "off").current_dir(within);
        command
    };
    run_with_retry(start, what, download)?;
    let answer: Value = serde_json::from_str(&output(&mut download())?)
        .with_context(|| format!("parse the output of go mod download for {what}"))?;
    let dir = answer["Dir"]
        .as_str()
        .context("go mod download printed no Dir")?;
    Ok(PathBuf::from(dir))
}

/// Appends upstream's `go.sum`: the checksum database need not know all of its dependencies.
fn append_checksums(theirs: &Path, within: &Path) -> Result<()> {
    let theirs = theirs.join("go.sum");
    if theirs.exists() {
        let text = fs::read(&theirs).with_context(|| format!("read {}", theirs.display()))?;
        // Appended, because Go may have written lines already.
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
    // The programs run on this machine, whatever the caller cross-compiles.
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
    fn our_module_requires_one_version() {
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
    fn modules_of_the_same_repository_are_replaced_by_their_published_version() {
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
    fn programs_are_stripped_and_stamped_with_their_version() {
        assert_eq!(linker_flags(&CNI), "-s -w");
        assert_eq!(
            linker_flags(&TAILSCALE),
            "-s -w -X tailscale.com/version.longStamp=1.102.5 \
             -X tailscale.com/version.shortStamp=1.102.5"
        );
    }
}
