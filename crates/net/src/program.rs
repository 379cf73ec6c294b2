//! Runs programs with a timeout and bounded output.
//!
//! None outlives this process: a program is killed with all its descendants, at its timeout or when
//! this process ends.

mod group;

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use group::Group;
pub use group::kill_all;

/// A user's `PATH` may lack these: `man 7 hier`.
const SBIN: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// Exit status and output of a program.
#[derive(Clone, Debug)]
pub struct ProgramOutput {
    /// Exit status.
    pub status: ExitStatus,
    /// Standard output, truncated.
    pub stdout: String,
    /// Standard error, truncated.
    pub stderr: String,
}

/// Input and limits of a program.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions<'a> {
    /// Standard input.
    pub stdin: &'a str,
    /// The program is killed after this time.
    pub timeout: Duration,
    /// Bytes to keep of standard output and of standard error; the rest is discarded.
    pub max_output: usize,
}

/// The program of this name in `PATH` or an sbin directory.
pub fn find(name: &str) -> Option<PathBuf> {
    find_in(name, &std::env::var_os("PATH").unwrap_or_default())
}

pub(crate) fn find_in(name: &str, path: &OsStr) -> Option<PathBuf> {
    let is_program = |file: &PathBuf| {
        file.metadata()
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(path)
        // A relative one would depend on the working directory of the caller.
        .filter(|dir| dir.is_absolute())
        .chain(SBIN.map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(is_program)
}

/// Runs a program in the netns of this thread; `None` if it was killed after the timeout.
pub fn run<S: AsRef<OsStr>>(
    program: &Path,
    args: &[S],
    options: RunOptions<'_>,
) -> io::Result<Option<ProgramOutput>> {
    let end = Instant::now() + options.timeout;
    let mut command = Command::new(program);
    command
        .args(args)
        // Callers match error messages.
        .env("LC_ALL", "C")
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut group = Group::spawn(&mut command)?;

    // Large input could block us while the program waits for its output to be read.
    let (stdin, input) = (group.leader.stdin.take(), options.stdin.to_owned());
    thread::spawn(move || stdin.map(|mut pipe| pipe.write_all(input.as_bytes())));
    let stdout = read_in_thread(group.leader.stdout.take(), options.max_output);
    let stderr = read_in_thread(group.leader.stderr.take(), options.max_output);

    let receive = |pipe: Receiver<String>| {
        let remaining = end.saturating_duration_since(Instant::now());
        pipe.recv_timeout(remaining).ok()
    };
    let outcome = match (receive(stdout), receive(stderr)) {
        (Some(stdout), Some(stderr)) => group.wait_until(end).map(|status| {
            status.map(|status| ProgramOutput {
                status,
                stdout,
                stderr,
            })
        }),
        _ => Ok(None),
    };
    if !matches!(outcome, Ok(Some(_))) {
        group.kill();
    }
    outcome
}

fn read_in_thread(pipe: Option<impl Read + Send + 'static>, limit: usize) -> Receiver<String> {
    let (sender, text) = mpsc::channel();
    thread::spawn(move || {
        sender.send(pipe.map_or_else(String::new, |pipe| read_bounded(pipe, limit)))
    });
    text
}

/// Reads to the end, so that the program never blocks, and keeps the beginning.
fn read_bounded(mut pipe: impl Read, limit: usize) -> String {
    let mut kept = Vec::new();
    // On an error, the text so far counts.
    let _ = (&mut pipe)
        .take(u64::try_from(limit).unwrap_or(u64::MAX))
        .read_to_end(&mut kept);
    let rest = io::copy(&mut pipe, &mut io::sink()).unwrap_or(0);
    let mut text = String::from_utf8_lossy(&kept).trim_end().to_owned();
    if rest > 0 {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: RunOptions<'static> = RunOptions {
        stdin: "",
        timeout: Duration::from_secs(10),
        max_output: 4096,
    };

    #[test]
    fn status_and_output_are_returned() {
        let options = RunOptions {
            stdin: "echo out; echo err >&2; exit 3",
            ..OPTIONS
        };
        let output = run(Path::new("/bin/sh"), &["-s"], options)
            .unwrap()
            .unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert_eq!((&*output.stdout, &*output.stderr), ("out", "err"));
    }

    #[test]
    fn long_output_is_truncated_and_does_not_block_the_program() {
        let options = RunOptions {
            stdin: "head -c 1000000 /dev/zero | tr '\\0' x",
            max_output: 100,
            ..OPTIONS
        };
        let output = run(Path::new("/bin/sh"), &["-s"], options)
            .unwrap()
            .unwrap();
        assert_eq!(output.stdout, format!("{}…", "x".repeat(100)));
    }

    #[test]
    fn a_program_that_hangs_is_killed() {
        let start = Instant::now();
        for script in ["exec sleep 1000", "exec sleep 1000 >&- 2>&-"] {
            let options = RunOptions {
                stdin: script,
                timeout: Duration::from_millis(200),
                ..OPTIONS
            };
            assert!(
                run(Path::new("/bin/sh"), &["-s"], options)
                    .unwrap()
                    .is_none()
            );
        }
        assert!(start.elapsed() < OPTIONS.timeout);
    }

    #[test]
    fn descendants_are_killed_with_the_program() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let script = format!("sleep 1000 & echo $! > {}; wait", file.display());
        let options = RunOptions {
            stdin: &script,
            timeout: Duration::from_secs(2),
            ..OPTIONS
        };
        assert!(
            run(Path::new("/bin/sh"), &["-s"], options)
                .unwrap()
                .is_none()
        );
        let pid = std::fs::read_to_string(&file).unwrap();
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        // Its new parent may not have reaped it yet.
        assert!(stat.is_err() || stat.unwrap().contains(") Z "));
    }

    #[test]
    fn a_program_may_ignore_its_input() {
        let long = "# ".repeat(1 << 19);
        let options = RunOptions {
            stdin: &long,
            ..OPTIONS
        };
        let none: &[&str] = &[];
        let output = run(Path::new("/bin/true"), none, options).unwrap();
        assert!(output.unwrap().status.success());
    }

    #[test]
    fn programs_are_found_in_sbin_and_never_in_a_relative_directory() {
        let nft = find_in("nft", OsStr::new("/nonexistent")).unwrap();
        assert!(nft.starts_with("/usr/sbin") || nft.starts_with("/sbin"));
        assert_eq!(find_in("lib.rs", OsStr::new("src:.")), None);
        assert_eq!(find_in("no-such-program", OsStr::new("/bin")), None);
    }
}
