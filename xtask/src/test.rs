//! `make test` and `make e2e`: build as the caller, then run the test programs as root.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::available_parallelism;
use std::time::Instant;

use anyhow::{Context, Result};
use lab::tools::{TAILSCALE, workspace_dir};

use crate::cargo::{cargo, target_dir};
use crate::check::{check, timed};
use crate::privilege::{as_root, require_root_available, run_as_root};
use crate::process::{output, progress, run};
use crate::tools::{self, ToolSet, nextest};
use crate::{chart, dist};

/// Test targets, in whatever crate, that need a real Kubernetes.
const END_TO_END: &str = "kind(test) & binary(kubernetes)";

/// Every check and every test, except those that need a real Kubernetes.
pub(crate) fn test() -> Result<()> {
    let start = Instant::now();
    require_root_available("make test")?;
    tools::ensure("make test", &ToolSet::test())?;
    check()?;
    timed("doc tests", || {
        run(&mut cargo(&["test", "--workspace", "--doc"]))
    })?;
    let tests = timed("build of tests", || TestPrograms::build(&["--tests"]))?;
    timed("integration tests", || {
        tests.run(&format!("kind(test) - ({END_TO_END})"))
    })?;
    progress(start, "test: passed");
    Ok(())
}

/// The chart, and the tests against a real Kubernetes.
pub(crate) fn end_to_end() -> Result<()> {
    let start = Instant::now();
    require_root_available("make e2e")?;
    tools::ensure("make e2e", &ToolSet::e2e())?;
    timed("release build", dist::build)?;
    timed("chart", || chart::run(&[]))?;
    timed("image", lay_out_image)?;
    let tests = timed("build of tests", || {
        TestPrograms::build(&["--test", "kubernetes"])
    })?;
    timed("tests", || tests.run(END_TO_END))?;
    progress(start, "e2e: passed");
    Ok(())
}

/// More tests at once than cores: most of them wait for processes and timers. Those that don't are in
/// groups, in `.config/nextest.toml`.
pub(crate) fn threads() -> [String; 2] {
    let cores = available_parallelism().map_or(2, usize::from);
    ["--test-threads".to_owned(), (2 * cores).to_string()]
}

/// Built test programs, and the files that let nextest run them without cargo.
struct TestPrograms {
    cargo_metadata: PathBuf,
    binaries_metadata: PathBuf,
}

impl TestPrograms {
    /// Builds the programs that cargo's options select.
    fn build(selection: &[&str]) -> Result<Self> {
        let dir = target_dir()?.join("nextest");
        fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
        let list = ["list", "--workspace", "--list-type", "binaries-only"];
        let binaries = output(
            nextest(&list)
                .args(["--message-format", "json"])
                .args(selection),
        )?;
        let metadata = output(&mut cargo(&["metadata", "--format-version=1", "--locked"]))?;
        let programs = Self {
            cargo_metadata: dir.join("cargo-metadata.json"),
            binaries_metadata: dir.join("binaries-metadata.json"),
        };
        write(&programs.binaries_metadata, &binaries)?;
        write(&programs.cargo_metadata, &metadata)?;
        Ok(programs)
    }

    /// Runs the tests of a filterset as root. All of them, even after a failure.
    fn run(&self, filter: &str) -> Result<()> {
        let mut command = nextest(&["run", "--filterset", filter]);
        command
            .args(threads())
            .arg("--cargo-metadata")
            .arg(&self.cargo_metadata)
            .arg("--binaries-metadata")
            .arg(&self.binaries_metadata)
            .env("HEADCNI_BIN_DIR", dist::bin_dir());
        run_as_root(command)
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    File::create(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("write {}", path.display()))
}

/// Lays out the image's files, which the tests' kubelets run Pods of. As root: they belong to root
/// in the image too.
fn lay_out_image() -> Result<()> {
    let dir = workspace_dir().join("dist/image");
    if dir.exists() {
        let mut remove = Command::new("rm");
        remove.arg("-rf").arg(&dir);
        run(&mut as_root(remove)?)?;
    }
    let mut build = Command::new(workspace_dir().join("image/build"));
    build.arg("--root").arg(&dir);
    build
        .arg("--tailscaled")
        .arg(TAILSCALE.program("tailscaled"));
    run(&mut as_root(build)?)
}
