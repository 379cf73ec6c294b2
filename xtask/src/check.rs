//! The quick loop: what must hold before anyone else sees a change.

mod border;
mod licence;
mod spdx;

use std::fs;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::cargo::cargo;
use crate::dist;
use crate::elf::check_static;
use crate::run::{run, say};

/// Runs all checks, the cheapest first.
pub(crate) fn check() -> Result<()> {
    let start = Instant::now();
    run(&mut cargo(&["fmt", "--all", "--check"]))?;
    licence::check()?;
    border::check()?;
    run(&mut cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]))?;
    run(&mut cargo(&["test", "--workspace", "--lib", "--bins"]))?;
    run(cargo(&["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))?;
    dist::build()?;
    programs_are_static()?;
    say(start, "check: all well");
    Ok(())
}

fn programs_are_static() -> Result<()> {
    for program in dist::programs() {
        let path = dist::bin_dir().join(program.bin);
        let image = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        check_static(&image).with_context(|| format!("{} is not static", path.display()))?;
    }
    Ok(())
}
