//! Installs the real components that tests, the demo and the benchmarks run against.
//! `lab::tools` lists them.

mod cargo_install;
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

use crate::process::{is_in_path, progress};
use cargo_install::{CargoTool, DENY, NEXTEST};
pub(crate) use cargo_install::{deny, nextest};

const UNFINISHED: &str = "building-";

/// What one make target needs.
pub(crate) struct ToolSet {
    packages: Vec<&'static str>,
    modules: Vec<&'static GoModule>,
    podman: bool,
    cargo: &'static [CargoTool],
}

impl ToolSet {
    pub(crate) fn demo() -> Self {
        Self {
            packages: MESH_PACKAGES.to_vec(),
            modules: vec![&CNI_PLUGINS, &TAILSCALE, &HEADSCALE],
            podman: false,
            cargo: &[],
        }
    }

    pub(crate) fn test() -> Self {
        Self {
            packages: [MESH_PACKAGES, TEST_PACKAGES].concat(),
            modules: go_modules().collect(),
            podman: true,
            cargo: &[NEXTEST, DENY],
        }
    }

    pub(crate) fn bench() -> Self {
        Self {
            cargo: &[],
            ..Self::test()
        }
    }

    pub(crate) fn e2e() -> Self {
        let mesh = [&CNI_PLUGINS, &TAILSCALE, &HEADSCALE];
        Self {
            packages: [MESH_PACKAGES, TEST_PACKAGES].concat(),
            modules: mesh.into_iter().chain(MODULES).collect(),
            podman: false,
            cargo: &[NEXTEST],
        }
    }

    /// Unit tests only: no component, and no root.
    pub(crate) fn check() -> Self {
        Self {
            packages: vec![],
            modules: vec![],
            podman: false,
            cargo: &[NEXTEST, DENY],
        }
    }

    fn chart() -> Self {
        Self {
            modules: vec![&HELM],
            cargo: &[],
            ..Self::check()
        }
    }
}

/// `cargo xtask tools [kubernetes]`.
pub(crate) fn run(args: &[String]) -> Result<()> {
    match args {
        [] => ensure("make tools", &ToolSet::test()),
        [part] if part == "kubernetes" => ensure("make tools", &ToolSet::e2e()),
        [other, ..] => bail!("there is no part {other:?} of the tools: use \"kubernetes\" or none"),
    }
}

/// Installs what is missing of a set. Uses neither network nor lock if nothing is.
pub(crate) fn ensure(target: &str, set: &ToolSet) -> Result<()> {
    let start = Instant::now();
    let missing = Missing::of(set)?;
    if missing.is_empty() {
        return Ok(());
    }
    missing.announce(target);
    missing.require_compilers()?;
    let _lock = lock(start)?;
    // Another run may have installed some of it while this one waited: each step looks again.
    debian::install_missing(start, &set.packages)?;
    if set.podman {
        unpack::unpack_missing(start, &PODMAN)?;
    }
    build_missing(start, set)?;
    progress(
        start,
        &format!("tools: complete, in {}", cache_dir().display()),
    );
    Ok(())
}

/// Builds helm if it is missing, and returns its path.
pub(crate) fn ensure_helm() -> Result<PathBuf> {
    ensure("make chart", &ToolSet::chart())?;
    Ok(HELM.program("helm"))
}

/// What a machine lacks of a set.
struct Missing {
    packages: Vec<&'static str>,
    modules: Vec<&'static GoModule>,
    podman: bool,
    cargo: Vec<&'static CargoTool>,
}

impl Missing {
    fn of(set: &ToolSet) -> Result<Self> {
        let lacks = |module: &&&'static GoModule| !module.missing().is_empty();
        Ok(Self {
            packages: debian::missing_packages(&set.packages)?,
            modules: set.modules.iter().filter(lacks).copied().collect(),
            podman: set.podman && !PODMAN.missing().is_empty(),
            cargo: set
                .cargo
                .iter()
                .filter(|tool| !tool.is_installed())
                .collect(),
        })
    }

    fn is_empty(&self) -> bool {
        self.packages.is_empty() && self.modules.is_empty() && !self.podman && self.cargo.is_empty()
    }

    fn announce(&self, target: &str) {
        let minutes: u32 = self
            .modules
            .iter()
            .map(|module| build_minutes(module))
            .sum();
        // One for packages, and two for a cargo tool.
        let minutes = minutes + 2 * u32::try_from(self.cargo.len()).unwrap_or(0) + 1;
        eprintln!(
            "{target} first installs what this machine lacks, in about {minutes} minutes on two cores:"
        );
        if !self.packages.is_empty() {
            eprintln!("  Debian packages, as root: {}", self.packages.join(" "));
        }
        let cache = cache_dir();
        let mut built: Vec<String> = self
            .modules
            .iter()
            .map(|module| format!("{} {}", module.name, module.version))
            .collect();
        let cargo = self.cargo.iter();
        built.extend(cargo.map(|tool| format!("{} {}", tool.name, tool.version)));
        if self.podman {
            built.push(format!("podman {} (unpacked)", PODMAN.version));
        }
        if !built.is_empty() {
            eprintln!("  into {}: {}", cache.display(), built.join(", "));
        }
    }

    fn require_compilers(&self) -> Result<()> {
        if !self.modules.is_empty() && !is_in_path("go") {
            bail!(
                "Go is missing: install Go {} or newer (https://go.dev/doc/install) and put it in PATH",
                go::GO_NEEDED
            );
        }
        Ok(())
    }
}

/// Measured on two cores with a warm download cache, rounded up.
fn build_minutes(module: &GoModule) -> u32 {
    match module.name {
        "kubernetes" => 8,
        "containerd" | "headscale" | "helm" | "tailscale" => 2,
        _ => 1,
    }
}

/// Builds two modules at a time: while one links or waits for a large package, the other has a core.
fn build_missing(start: Instant, set: &ToolSet) -> Result<()> {
    let next = Mutex::new(set.modules.iter());
    let build_modules = || -> Result<()> {
        loop {
            let module = next.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(module) = module else { return Ok(()) };
            go::build_missing(start, module)?;
        }
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            for tool in set.cargo {
                tool.install_missing(start)?;
            }
            build_modules()
        });
        let mine = build_modules();
        let others = other.join().unwrap_or_else(|panic| resume_unwind(panic));
        mine.and(others)
    })
}

/// Waits for the lock that guards the cache.
fn lock(start: Instant) -> Result<File> {
    let cache = cache_dir();
    fs::create_dir_all(&cache).with_context(|| format!("create cache {}", cache.display()))?;
    let path = cache.join("lock");
    let lock = File::create(&path).with_context(|| {
        format!(
            "open {}; if root owns it, run \"sudo chown -R $USER {}\"",
            path.display(),
            cache.display()
        )
    })?;
    if lock.try_lock().is_err() {
        progress(start, "tools: waiting for another run to finish");
        lock.lock()
            .with_context(|| format!("lock {}", path.display()))?;
    }
    remove_unfinished(&cache)?;
    Ok(lock)
}

/// Removes what killed runs left behind. Go caches what it compiled, so little is lost.
fn remove_unfinished(cache: &Path) -> Result<()> {
    for entry in fs::read_dir(cache).with_context(|| format!("list {}", cache.display()))? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
            remove_dir(&entry.path())?;
        }
    }
    Ok(())
}

/// Creates an empty directory in the cache for a step that renames its result into place when it is
/// complete. The caller holds the cache's lock.
fn create_work_dir(cache: &Path, what: &str) -> Result<PathBuf> {
    // With the process id: a compiler that outlives a killed run must not write into ours.
    let dir = cache.join(format!("{UNFINISHED}{}-{what}", process::id()));
    fs::create_dir(&dir).with_context(|| format!("create {}", dir.display()))?;
    Ok(dir)
}

fn remove_dir(dir: &Path) -> Result<()> {
    fs::remove_dir_all(dir).with_context(|| format!("remove {}", dir.display()))
}
