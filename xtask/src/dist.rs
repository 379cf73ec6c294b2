//! The release binaries: built into `dist/bin`, and from there put where runtimes look.

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
use crate::run::{output, run, run_patiently};

/// A program that we ship.
pub(crate) struct Program {
    /// Cargo package.
    pub(crate) package: &'static str,
    /// Name of the binary; of a plugin, it is also the `type`.
    pub(crate) bin: &'static str,
}

/// The CNI plugins.
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

/// What runs all the time.
const DAEMONS: &[Program] = &[Program {
    package: "daemon",
    bin: "headcni-daemon",
}];

/// All programs, those that are built together in one group, and where they are installed. A plugin
/// must not be built with what a daemon needs of their common dependencies.
const GROUPS: [(&[Program], &str); 2] = [(PLUGINS, "opt/cni/bin"), (DAEMONS, "usr/local/bin")];

/// All programs.
pub(crate) fn programs() -> impl Iterator<Item = &'static Program> {
    GROUPS.into_iter().flat_map(|(programs, _)| programs)
}

/// Where `make build` leaves the binaries.
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

/// A `cargo build` for static binaries, still to be told of what.
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

/// Puts what was built into its directories under a root, `/` if none is named.
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

/// Copies a program into a directory so that whoever starts it meanwhile gets the old one or
/// the new one, whole. A plain copy would also fail while the old one runs.
fn place(program: &Path, dir: &Path) -> Result<()> {
    let name = program.file_name().context("a program has a name")?;
    let to = dir.join(name);
    let fresh = dir.join(format!(".{}.{}", name.to_string_lossy(), process::id()));
    fs::create_dir_all(dir).with_context(|| format!("make {}", dir.display()))?;
    let copied = copy_executable(program, &fresh)
        .and_then(|()| fs::rename(&fresh, &to))
        .with_context(|| format!("copy {} to {}", program.display(), to.display()));
    if copied.is_err() {
        // The copy failed for a reason that is reported; that it may not exist is not news.
        let _ = fs::remove_file(&fresh);
    }
    copied?;
    eprintln!("{}", to.display());
    Ok(())
}

/// Copies a program in one large write: the kernel keeps what is written at once in large pieces,
/// and a process whose program is in small ones starts a tenth of a millisecond later.
pub(crate) fn copy_executable(from: &Path, to: &Path) -> std::io::Result<()> {
    let program = fs::read(from)?;
    let mut file = File::create(to)?;
    file.write_all(&program)?;
    file.set_permissions(Permissions::from_mode(0o755))?;
    file.sync_all()
}

/// The target whose binaries run on this machine and need nothing of it.
pub(crate) fn musl_target() -> Result<&'static str> {
    Ok(match env::consts::ARCH {
        "x86_64" => "x86_64-unknown-linux-musl",
        "aarch64" => "aarch64-unknown-linux-musl",
        "riscv64" => "riscv64gc-unknown-linux-musl",
        other => bail!("no static target is known for {other}"),
    })
}

/// The variable that names the compiler for the daemon's parts in C, unless the person has chosen one
/// or there is one that is found without.
///
/// What these parts need of C's library they get from musl when they are linked, and they call
/// nothing that looks different there, so the machine's own compiler does as well as one for musl.
fn c_compiler(
    target: &str,
    is_set: impl Fn(&str) -> bool,
    is_found: impl Fn(&str) -> bool,
) -> Option<(String, &'static str)> {
    // What the crate `cc` looks at: https://docs.rs/cc/latest/cc/#external-configuration-via-environment-variables
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

fn is_in_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|dir| dir.join(program).is_file())
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
            "the standard library for {target} is missing, and rustup to fetch it: install rustup"
        );
    }
    run_patiently(Instant::now(), "rustup", || {
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
    fn the_machines_own_compiler_is_taken_where_no_other_is_there_or_chosen() {
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
        // The build says then what it misses.
        assert_eq!(chosen(&[], &[]), None);
    }

    #[test]
    fn a_placed_program_is_executable_and_replaces_the_old_one() {
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
