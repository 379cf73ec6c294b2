//! Everything, on a machine that has only Rust, Go and apt.

use std::time::Instant;

use anyhow::{Result, bail};
use lab::tools::cache_dir;

use crate::cargo::cargo;
use crate::check::check;
use crate::run::{is_root, run, say};
use crate::{dist, tools};

/// Fetches, builds, checks, and then runs every test against the real components.
pub(crate) fn test() -> Result<()> {
    let start = Instant::now();
    if !is_root()? {
        bail!("tests make network namespaces, and only root may: run \"sudo make test\"");
    }
    tools::ensure()?;
    check()?;
    run(&mut cargo(&["test", "--workspace", "--doc"]))?;
    // All of them, even after a failure: on a slow machine one wants to know once. Cargo runs one target
    // after the other, so whoever starts whole clusters has the machine for itself.
    run(
        cargo(&["test", "--workspace", "--test", "*", "--no-fail-fast"])
            .env("HEADCNI_BIN_DIR", dist::bin_dir())
            .env("HEADCNI_CACHE", cache_dir()),
    )?;
    say(start, "test: all passed");
    Ok(())
}
