//! Puts the real components that tests need on this machine. `lab::tools` says which.

mod debian;
mod go;

use std::fs::{self, File};
use std::time::Instant;

use anyhow::{Context, Result};
use lab::tools::{GO_MODULES, cache_dir};

use crate::run::say;

/// Fetches what is missing; touches neither network nor lock when nothing is.
pub(crate) fn ensure() -> Result<()> {
    let start = Instant::now();
    if is_complete()? {
        eprintln!("tools: all there, in {}", cache_dir().display());
        return Ok(());
    }
    let cache = cache_dir();
    fs::create_dir_all(&cache).with_context(|| format!("make cache {}", cache.display()))?;
    let path = cache.join("lock");
    let lock = File::create(&path).with_context(|| format!("open {}", path.display()))?;
    if lock.try_lock().is_err() {
        say(start, "tools: waiting for another run to finish");
        lock.lock()
            .with_context(|| format!("lock {}", path.display()))?;
    }
    // Another run may have done the work while this one waited: each step looks again.
    debian::install_missing(start)?;
    for module in GO_MODULES {
        go::build_missing(start, module)?;
    }
    say(start, &format!("tools: all there, in {}", cache.display()));
    Ok(())
}

fn is_complete() -> Result<bool> {
    Ok(GO_MODULES.iter().all(|module| module.missing().is_empty())
        && debian::missing_packages()?.is_empty())
}
