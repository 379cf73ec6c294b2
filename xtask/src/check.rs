//! `make check`: what must hold before a change is reviewed. It needs no root.

mod architecture;
mod dependencies;
mod static_binaries;

use std::time::Instant;

use anyhow::Result;

use crate::cargo::cargo;
use crate::process::{progress, run};
use crate::tools::{self, ToolSet, nextest};
use crate::{dist, test};

/// Runs all checks, the cheapest first.
pub(crate) fn check() -> Result<()> {
    let start = Instant::now();
    tools::ensure("make check", &ToolSet::check())?;
    timed("format", || run(&mut cargo(&["fmt", "--all", "--check"])))?;
    architecture::check()?;
    timed("dependencies", dependencies::check)?;
    let clippy = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ];
    timed("clippy", || run(&mut cargo(&clippy)))?;
    timed("unit tests", || {
        let unit = ["run", "--workspace", "--lib", "--bins"];
        run(nextest(&unit).args(test::threads()))
    })?;
    timed("doc", || {
        run(cargo(&["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))
    })?;
    timed("release build", dist::build)?;
    static_binaries::check()?;
    progress(start, "check: passed");
    Ok(())
}

/// Prints how long a phase took.
pub(crate) fn timed<T>(phase: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    let outcome = work();
    progress(start, &format!("phase: {phase}"));
    outcome
}
