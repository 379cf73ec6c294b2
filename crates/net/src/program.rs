//! Other programs: found in trusted places, given a deadline, and not listened to for ever.
//!
//! None outlives us: whatever one has started is killed with it, at its deadline or at our end.

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
pub use group::end_all;

/// Where programs are on machines whose `PATH` is a user's: `man 7 hier`.
const SBIN: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// How a program ended, and what it said.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Its exit status.
    pub status: ExitStatus,
    /// The beginning of its standard output.
    pub stdout: String,
    /// The beginning of its complaints.
    pub stderr: String,
}

/// What a program gets, and how much of it is taken.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// Its input.
    pub stdin: &'a str,
    /// After this it is killed.
    pub deadline: Duration,
    /// So many bytes of its output are kept; the rest is read and forgotten.
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
        // A relative one would mean whatever directory the caller happens to be in.
        .filter(|dir| dir.is_absolute())
        .chain(SBIN.map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(is_program)
}

/// Runs a program in the namespace of this thread; nothing if it had to be killed.
pub fn run<S: AsRef<OsStr>>(
    program: &Path,
    args: &[S],
    terms: Terms<'_>,
) -> io::Result<Option<Ended>> {
    let end = Instant::now() + terms.deadline;
    let mut command = Command::new(program);
    command
        .args(args)
        // Errors are told apart by their words.
        .env("LC_ALL", "C")
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut group = Group::spawn(&mut command)?;

    // Input larger than a pipe would block us while the program may be blocked by its output.
    let (stdin, input) = (group.leader.stdin.take(), terms.stdin.to_owned());
    thread::spawn(move || stdin.map(|mut pipe| pipe.write_all(input.as_bytes())));
    let stdout = listen(group.leader.stdout.take(), terms.max_output);
    let stderr = listen(group.leader.stderr.take(), terms.max_output);

    let hear = |pipe: Receiver<String>| {
        let patience = end.saturating_duration_since(Instant::now());
        pipe.recv_timeout(patience).ok()
    };
    let outcome = match (hear(stdout), hear(stderr)) {
        (Some(stdout), Some(stderr)) => group.wait_until(end).map(|status| {
            status.map(|status| Ended {
                status,
                stdout,
                stderr,
            })
        }),
        _ => Ok(None),
    };
    if !matches!(outcome, Ok(Some(_))) {
        group.end();
    }
    outcome
}

fn listen(pipe: Option<impl Read + Send + 'static>, limit: usize) -> Receiver<String> {
    let (sender, words) = mpsc::channel();
    thread::spawn(move || sender.send(pipe.map_or_else(String::new, |pipe| bounded(pipe, limit))));
    words
}

/// Reads to the end, so that the process is never held up, but keeps no more than the beginning.
fn bounded(mut pipe: impl Read, limit: usize) -> String {
    let mut kept = Vec::new();
    // What could be read before an error is what there is.
    let _ = (&mut pipe)
        .take(u64::try_from(limit).unwrap_or(u64::MAX))
        .read_to_end(&mut kept);
    let rest = io::copy(&mut pipe, &mut io::sink()).unwrap_or(0);
    let mut words = String::from_utf8_lossy(&kept).trim_end().to_owned();
    if rest > 0 {
        words.push('…');
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms<'static> = Terms {
        stdin: "",
        deadline: Duration::from_secs(10),
        max_output: 4096,
    };

    #[test]
    fn a_program_says_what_it_was_told_to() {
        let terms = Terms {
            stdin: "echo out; echo err >&2; exit 3",
            ..TERMS
        };
        let ended = run(Path::new("/bin/sh"), &["-s"], terms).unwrap().unwrap();
        assert_eq!(ended.status.code(), Some(3));
        assert_eq!((&*ended.stdout, &*ended.stderr), ("out", "err"));
    }

    #[test]
    fn endless_output_is_cut_and_does_not_hold_the_program_up() {
        let terms = Terms {
            stdin: "head -c 1000000 /dev/zero | tr '\\0' x",
            max_output: 100,
            ..TERMS
        };
        let ended = run(Path::new("/bin/sh"), &["-s"], terms).unwrap().unwrap();
        assert_eq!(ended.stdout, format!("{}…", "x".repeat(100)));
    }

    #[test]
    fn a_program_that_hangs_is_killed() {
        let start = Instant::now();
        for script in ["exec sleep 1000", "exec sleep 1000 >&- 2>&-"] {
            let terms = Terms {
                stdin: script,
                deadline: Duration::from_millis(200),
                ..TERMS
            };
            assert!(run(Path::new("/bin/sh"), &["-s"], terms).unwrap().is_none());
        }
        assert!(start.elapsed() < TERMS.deadline);
    }

    #[test]
    fn whatever_it_has_started_is_killed_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let script = format!("sleep 1000 & echo $! > {}; wait", file.display());
        let terms = Terms {
            stdin: &script,
            deadline: Duration::from_secs(2),
            ..TERMS
        };
        assert!(run(Path::new("/bin/sh"), &["-s"], terms).unwrap().is_none());
        let pid = std::fs::read_to_string(&file).unwrap();
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        // Whoever takes its place as a parent may not have looked yet.
        assert!(stat.is_err() || stat.unwrap().contains(") Z "));
    }

    #[test]
    fn a_program_that_does_not_read_its_input_is_no_trouble() {
        let long = "# ".repeat(1 << 19);
        let terms = Terms {
            stdin: &long,
            ..TERMS
        };
        let none: &[&str] = &[];
        let ended = run(Path::new("/bin/true"), none, terms).unwrap();
        assert!(ended.unwrap().status.success());
    }

    #[test]
    fn a_program_is_found_outside_of_path_and_never_in_a_relative_directory() {
        let nft = find_in("nft", OsStr::new("/nonexistent")).unwrap();
        assert!(nft.starts_with("/usr/sbin") || nft.starts_with("/sbin"));
        assert_eq!(find_in("lib.rs", OsStr::new("src:.")), None);
        assert_eq!(find_in("no-such-program", OsStr::new("/bin")), None);
    }
}
