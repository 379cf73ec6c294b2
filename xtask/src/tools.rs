//! Puts the real components that tests need on this machine. `lab::tools` says which.

mod debian;
mod go;
mod unpack;

use std::fs::{self, File};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use lab::tools::kubernetes::{HELM, MODULES};
use lab::tools::{
    CNI_PLUGINS, GoModule, HEADSCALE, MESH_PACKAGES, PODMAN, TAILSCALE, TEST_PACKAGES, cache_dir,
    go_modules,
};

use crate::run::say;

const UNFINISHED: &str = "building-";

/// Fetches what `make test` needs, or a part that it does not.
pub(crate) fn run(args: &[String]) -> Result<()> {
    match args {
        [] => ensure(),
        [part] if part == "kubernetes" => ensure_for_kubernetes(),
        [other, ..] => bail!("no part {other:?} of the tools: there is \"kubernetes\""),
    }
}

/// Fetches what is missing; touches neither network nor lock when nothing is.
pub(crate) fn ensure() -> Result<()> {
    let modules: Vec<_> = go_modules().collect();
    ensure_these(&modules, &all_packages(), true)
}

/// Fetches what a mesh needs, which is there much sooner than everything.
pub(crate) fn ensure_for_mesh() -> Result<()> {
    ensure_these(
        &[&CNI_PLUGINS, &TAILSCALE, &HEADSCALE],
        MESH_PACKAGES,
        false,
    )
}

/// Fetches what a real Kubernetes needs, and nodes of it that are members of a mesh.
pub(crate) fn ensure_for_kubernetes() -> Result<()> {
    let mesh = [&CNI_PLUGINS, &TAILSCALE, &HEADSCALE];
    let modules: Vec<_> = mesh.into_iter().chain(MODULES).collect();
    ensure_these(&modules, &all_packages(), false)
}

fn all_packages() -> Vec<&'static str> {
    [MESH_PACKAGES, TEST_PACKAGES].concat()
}

/// Builds helm if it is missing, and says where it is.
pub(crate) fn ensure_helm() -> Result<PathBuf> {
    if !HELM.missing().is_empty() {
        let start = Instant::now();
        let _lock = lock(start)?;
        go::build_missing(start, &HELM)?;
    }
    Ok(HELM.program("helm"))
}

/// Builds what is missing, two at a time: while one of them links, or waits for one large package, the
/// other has a core.
fn build_missing(start: Instant, modules: &[&GoModule]) -> Result<()> {
    let next = Mutex::new(modules.iter());
    let build_rest = || -> Result<()> {
        loop {
            let module = next.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(module) = module else { return Ok(()) };
            go::build_missing(start, module)?;
        }
    };
    thread::scope(|scope| {
        let other = scope.spawn(build_rest);
        let mine = build_rest();
        let others = other.join().unwrap_or_else(|panic| resume_unwind(panic));
        mine.and(others)
    })
}

fn ensure_these(modules: &[&GoModule], packages: &[&'static str], has_podman: bool) -> Result<()> {
    let start = Instant::now();
    if is_complete(modules, packages, has_podman)? {
        eprintln!("tools: all there, in {}", cache_dir().display());
        return Ok(());
    }
    let _lock = lock(start)?;
    // Another run may have done the work while this one waited: each step looks again.
    debian::install_missing(start, packages)?;
    if has_podman {
        unpack::unpack_missing(start, &PODMAN)?;
    }
    build_missing(start, modules)?;
    say(
        start,
        &format!("tools: all there, in {}", cache_dir().display()),
    );
    Ok(())
}

/// Waits for its turn to change the cache.
fn lock(start: Instant) -> Result<File> {
    let cache = cache_dir();
    fs::create_dir_all(&cache).with_context(|| format!("make cache {}", cache.display()))?;
    let path = cache.join("lock");
    let lock = File::create(&path).with_context(|| format!("open {}", path.display()))?;
    if lock.try_lock().is_err() {
        say(start, "tools: waiting for another run to finish");
        lock.lock()
            .with_context(|| format!("lock {}", path.display()))?;
    }
    remove_unfinished(&cache)?;
    Ok(lock)
}

/// Nothing of use is lost with what killed runs left: Go keeps a cache of what it compiled.
fn remove_unfinished(cache: &Path) -> Result<()> {
    for entry in fs::read_dir(cache).with_context(|| format!("list {}", cache.display()))? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
            remove_dir(&entry.path())?;
        }
    }
    Ok(())
}

fn is_complete(modules: &[&GoModule], packages: &[&'static str], has_podman: bool) -> Result<bool> {
    Ok(modules.iter().all(|module| module.missing().is_empty())
        && (!has_podman || PODMAN.missing().is_empty())
        && debian::missing_packages(packages)?.is_empty())
}

/// Makes an empty directory in the cache, where a step puts together what it renames into place
/// when it is whole. The caller holds the cache's lock.
fn fresh_dir(cache: &Path, what: &str) -> Result<PathBuf> {
    // Named after this run: a compiler that outlives a killed one must not write into ours.
    let fresh = cache.join(format!("{UNFINISHED}{}-{what}", process::id()));
    fs::create_dir(&fresh).with_context(|| format!("make {}", fresh.display()))?;
    Ok(fresh)
}

fn remove_dir(dir: &Path) -> Result<()> {
    fs::remove_dir_all(dir).with_context(|| format!("clear {}", dir.display()))
}
