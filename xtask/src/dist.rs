//! The release binaries: built into `dist/bin`, installed from there.

use std::env;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use lab::tools::workspace_dir;

use crate::cargo::{cargo, target_dir};
use crate::process::{is_in_path, output, run, run_with_retry};

/// A shipped program.
pub(crate) struct Program {
    pub(crate) package: &'static str,
    /// For a plugin also the `type` in a CNI configuration.
    pub(crate) bin: &'static str,
}

pub(crate) const PLUGINS: &[Program] = &[
    Program {
        package: "plugin",
        bin: "headcni",
    },
    Program {
        package: "ipam",
        bin: "headcni-ipam",
    },
];

const DAEMONS: &[Program] = &[Program {
    package: "daemon",
    bin: "headcni-daemon",
}];

/// Programs with their install directory. Each group is built alone: a plugin must not get the features
/// that the daemon enables in common dependencies.
const GROUPS: [(&[Program], &str); 2] = [(PLUGINS, "opt/cni/bin"), (DAEMONS, "usr/local/bin")];

pub(crate) fn programs() -> impl Iterator<Item = &'static Program> {
    GROUPS.into_iter().flat_map(|(programs, _)| programs)
}

pub(crate) fn bin_dir() -> PathBuf {
    workspace_dir().join("dist/bin")
}

/// Builds static binaries: they run on whatever libc a node has, and a plugin starts in half the
/// time of a dynamically linked one.
pub(crate) fn build() -> Result<()> {
    let target = musl_target()?;
    ensure_target(target)?;
    for (programs, _) in GROUPS {
        let mut command = static_build()?;
        for program in programs {
            command.args(["--package", program.package, "--bin", program.bin]);
        }
        run(&mut command)?;
    }

    let (built, dist) = (target_dir()?.join(target).join("release"), bin_dir());
    for program in programs() {
        place(&built.join(program.bin), &dist)?;
    }
    Ok(())
}

/// A `cargo build` for static binaries; the caller adds packages.
pub(crate) fn static_build() -> Result<Command> {
    let target = musl_target()?;
    let mut command = cargo(&["build", "--release", "--target", target]);
    command.envs(c_compiler(
        target,
        |name| env::var_os(name).is_some(),
        is_in_path,
    ));
    Ok(command)
}

/// Installs the programs below a root directory, `/` by default.
pub(crate) fn install(args: &[String]) -> Result<()> {
    let root = match args {
        [] => env::var_os("DESTDIR").unwrap_or_default(),
        [flag, root] if flag == "--destdir" => root.into(),
        _ => bail!("install takes --destdir DIR, not {args:?}"),
    };
    let into = if root.is_empty() {
        PathBuf::from("/")
    } else {
        PathBuf::from(root)
    };
    for (programs, dir) in GROUPS {
        for program in programs {
            let from = bin_dir().join(program.bin);
            if !from.is_file() {
                bail!("no {}: run \"make build\" first", from.display());
            }
            place(&from, &into.join(dir))?;
        }
    }
    Ok(())
}

/// Replaces a program by rename: a process that starts meanwhile gets the old one or the new one. A plain
/// copy would also fail while the old one runs.
fn place(program: &Path, dir: &Path) -> Result<()> {
    let name = program
        .file_name()
        .context("the program has no file name")?;
    let to = dir.join(name);
    let fresh = dir.join(format!(".{}.{}", name.to_string_lossy(), process::id()));
    fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
    let copied = copy_executable(program, &fresh)
        .and_then(|()| fs::rename(&fresh, &to))
        .with_context(|| format!("copy {} to {}", program.display(), to.display()));
    if copied.is_err() {
        // The copy's error is reported; the file may not exist.
        let _ = fs::remove_file(&fresh);
    }
    copied?;
    eprintln!("{}", to.display());
    Ok(())
}

/// Copies a program in one large write: the page cache then holds it in large folios, and a process
/// starts a tenth of a millisecond sooner.
pub(crate) fn copy_executable(from: &Path, to: &Path) -> std::io::Result<()> {
    let program = fs::read(from)?;
    let mut file = File::create(to)?;
    file.write_all(&program)?;
    file.set_permissions(Permissions::from_mode(0o755))?;
    file.sync_all()
}

/// The target for static binaries on this machine.
pub(crate) fn musl_target() -> Result<&'static str> {
    Ok(match env::consts::ARCH {
        "x86_64" => "x86_64-unknown-linux-musl",
        "aarch64" => "aarch64-unknown-linux-musl",
        "riscv64" => "riscv64gc-unknown-linux-musl",
        other => bail!("no static target for {other}"),
    })
}

/// The variable that names the compiler for the daemon's C dependencies, unless the caller has set one
/// or the crate `cc` finds a cross compiler itself.
///
/// These dependencies call nothing of libc that differs between glibc and musl, and they are linked
/// with musl, so the machine's own compiler will do.
fn c_compiler(
    target: &str,
    is_set: impl Fn(&str) -> bool,
    is_found: impl Fn(&str) -> bool,
) -> Option<(String, &'static str)> {
    // Read by the crate `cc`: https://docs.rs/cc/latest/cc/#external-configuration-via-environment-variables
    let ours = format!("CC_{}", target.replace('-', "_"));
    let theirs = format!("CC_{target}");
    if [&ours, &theirs, "TARGET_CC", "CC"].into_iter().any(is_set) {
        return None;
    }
    let arch = target.split('-').next().unwrap_or(target);
    let cross = format!("{}-linux-musl-gcc", arch.trim_end_matches("gc"));
    if is_found(&cross) {
        return None;
    }
    let compiler = ["musl-gcc", "cc"].into_iter().find(|name| is_found(name))?;
    Some((ours, compiler))
}

fn ensure_target(target: &str) -> Result<()> {
    let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]))?;
    if Path::new(sysroot.trim())
        .join("lib/rustlib")
        .join(target)
        .is_dir()
    {
        return Ok(());
    }
    if Command::new("rustup").arg("--version").output().is_err() {
        bail!(
            "the standard library for {target} is missing: install rustup (https://rustup.rs), or \
             your distribution's package of it"
        );
    }
    run_with_retry(Instant::now(), "rustup", || {
        let mut command = Command::new("rustup");
        command
            .args(["target", "add", target])
            .current_dir(workspace_dir());
        command
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_compiler_is_used_unless_another_is_installed_or_set() {
        const TARGET: &str = "x86_64-unknown-linux-musl";
        let chosen = |set: &[&str], found: &[&str]| {
            c_compiler(
                TARGET,
                |name| set.contains(&name),
                |name| found.contains(&name),
            )
            .map(|(variable, compiler)| format!("{variable}={compiler}"))
        };
        let set = |compiler| Some(format!("CC_x86_64_unknown_linux_musl={compiler}"));
        assert_eq!(chosen(&[], &["cc", "gcc"]), set("cc"));
        assert_eq!(chosen(&[], &["cc", "musl-gcc"]), set("musl-gcc"));
        assert_eq!(chosen(&[], &["cc", "x86_64-linux-musl-gcc"]), None);
        for name in ["CC", "TARGET_CC", "CC_x86_64-unknown-linux-musl"] {
            assert_eq!(chosen(&[name], &["cc"]), None);
        }
        // The build then reports what is missing.
        assert_eq!(chosen(&[], &[]), None);
    }

    #[test]
    fn an_installed_program_is_executable_and_replaces_the_old_one() {
        let dir = env::temp_dir().join(format!("xtask-place-{}", process::id()));
        let (from, into) = (dir.join("headcni"), dir.join("opt"));
        fs::create_dir_all(&dir).unwrap();
        for text in ["old", "new"] {
            fs::copy("/proc/self/comm", &from).unwrap();
            File::create(&from)
                .unwrap()
                .set_len(text.len() as u64)
                .unwrap();
            place(&from, &into).unwrap();
        }
        let placed = fs::metadata(into.join("headcni")).unwrap();
        let left = fs::read_dir(&into).unwrap().count();
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(
            (placed.len(), placed.permissions().mode() & 0o777, left),
            (3, 0o755, 1)
        );
    }
}
