//! Scripts for the program `nft`.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(10);
/// How often a process is looked at that has closed its output and not ended yet.
const PAUSE: Duration = Duration::from_millis(1);
/// A script of thousands of lines can fail in each of them; the first tell enough.
const MAX_WORDS: usize = 4096;
/// Where `nft` is on machines whose `PATH` is a user's: `man 7 hier`.
const SBIN: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// Why a script was not taken. Nothing of it was done then.
#[derive(Debug, thiserror::Error)]
pub enum NftError {
    /// There is no program `nft`.
    #[error("there is no program nft in PATH or /usr/sbin: install the package nftables")]
    NotInstalled,
    /// A table that the script creates is there already: somebody was faster.
    #[error("the nftables table that is to be created is there already")]
    Exists,
    /// `nft` refused the script.
    #[error("nft refused the script: {stderr}")]
    Refused {
        /// What it said, cut if it said too much.
        stderr: String,
    },
    /// `nft` took too long and was killed.
    #[error("nft did not end within {} s and was killed", DEADLINE.as_secs())]
    TimedOut,
    /// `nft` could not be run.
    #[error("run nft")]
    Run(#[source] io::Error),
}

/// Whether there is a program `nft`.
pub fn is_installed() -> bool {
    find("nft", &std::env::var_os("PATH").unwrap_or_default()).is_some()
}

/// Has `nft` do a script, all of it or nothing, in the namespace of this thread.
pub fn run(script: &str) -> Result<(), NftError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let program = find("nft", &path).ok_or(NftError::NotInstalled)?;
    run_program(&program, script, DEADLINE)
}

fn find(name: &str, path: &OsStr) -> Option<PathBuf> {
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

fn run_program(program: &Path, script: &str, deadline: Duration) -> Result<(), NftError> {
    let end = Instant::now() + deadline;
    let mut child = Command::new(program)
        .args(["-f", "-"])
        // Errors are told apart by their words.
        .env("LC_ALL", "C")
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(NftError::Run)?;

    // A script larger than a pipe would block us while `nft` may be blocked by its complaints.
    let (stdin, script) = (child.stdin.take(), script.to_owned());
    let (stderr, (sender, words)) = (child.stderr.take(), mpsc::channel());
    thread::spawn(move || stdin.map(|mut pipe| pipe.write_all(script.as_bytes())));
    thread::spawn(move || sender.send(stderr.map(bounded_words)));

    let words = words.recv_timeout(deadline).ok().flatten();
    let status = match words {
        Some(_) => await_end(&mut child, end),
        None => Ok(None),
    };
    if !matches!(status, Ok(Some(_))) {
        // Both fail only if it has just ended by itself, which comes too late.
        let _ = child.kill();
        let _ = child.wait();
    }
    match status.map_err(NftError::Run)? {
        None => Err(NftError::TimedOut),
        Some(status) if status.success() => Ok(()),
        Some(status) => {
            let mut stderr = words.unwrap_or_default();
            if creates_what_exists(&stderr) {
                return Err(NftError::Exists);
            }
            if stderr.is_empty() {
                let _ = write!(stderr, "{status}");
            }
            Err(NftError::Refused { stderr })
        }
    }
}

fn await_end(child: &mut Child, end: Instant) -> io::Result<Option<std::process::ExitStatus>> {
    loop {
        let status = child.try_wait()?;
        if status.is_some() || Instant::now() >= end {
            return Ok(status);
        }
        thread::sleep(PAUSE);
    }
}

/// Reads to the end, so that the process is never held up, but keeps no more than the beginning.
fn bounded_words(mut pipe: impl Read) -> String {
    let mut kept = vec![0; MAX_WORDS];
    let mut length = 0;
    while length < MAX_WORDS {
        match pipe.read(&mut kept[length..]) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    let rest = io::copy(&mut pipe, &mut io::sink()).unwrap_or(0);
    let mut words = String::from_utf8_lossy(&kept[..length])
        .trim_end()
        .to_owned();
    if rest > 0 {
        words.push('…');
    }
    words
}

/// Whether `nft` says, of a line that begins with `create table`, that the table is there.
fn creates_what_exists(words: &str) -> bool {
    let lines: Vec<&str> = words.lines().collect();
    lines.windows(2).any(|pair| {
        pair[0].contains("Error: Could not process rule: File exists")
            && pair[1].trim_start().starts_with("create table ")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_sh(script: &str, deadline: Duration) -> Result<(), NftError> {
        // `sh -f -` reads its commands from stdin as well.
        run_program(Path::new("/bin/sh"), script, deadline)
    }

    #[test]
    fn a_table_that_exists_is_told_from_other_errors() {
        let table = "/dev/stdin:1:19-25: Error: Could not process rule: File exists\n\
                     create table inet headcni { comment \"x\"; }\n                  ^^^^^^^\n";
        let element = "/dev/stdin:2:1-9: Error: Could not process rule: File exists\n\
                       create element inet t s { 1 }\n^^^^^^^^^\n";
        assert!(creates_what_exists(table));
        assert!(!creates_what_exists(element));
        assert!(!creates_what_exists("File exists"));
        assert!(!creates_what_exists(""));
    }

    #[test]
    fn a_refusal_carries_the_programs_words() {
        let error = run_sh("echo no such thing >&2; exit 1", DEADLINE).unwrap_err();
        assert_eq!(error.to_string(), "nft refused the script: no such thing");
        let error = run_sh("exit 7", DEADLINE).unwrap_err();
        assert_eq!(error.to_string(), "nft refused the script: exit status: 7");
    }

    #[test]
    fn endless_words_are_cut_and_do_not_hold_the_program_up() {
        let script = "i=0; while [ $i -lt 3000 ]; do echo 0123456789012345678901234567890123456789; \
                      i=$((i + 1)); done >&2; exit 1";
        let Err(NftError::Refused { stderr }) = run_sh(script, DEADLINE) else {
            panic!("not refused");
        };
        assert!(stderr.len() < MAX_WORDS + 8, "{}", stderr.len());
        assert!(stderr.ends_with('…'));
    }

    #[test]
    fn a_program_that_hangs_is_killed() {
        let start = Instant::now();
        for script in ["exec sleep 1000", "exec sleep 1000 2>&-"] {
            let error = run_sh(script, Duration::from_millis(200)).unwrap_err();
            assert!(matches!(error, NftError::TimedOut), "{error}");
        }
        assert!(start.elapsed() < DEADLINE);
    }

    #[test]
    fn a_program_that_does_not_read_its_script_is_no_trouble() {
        let long = "# ".repeat(1 << 19);
        assert!(run_program(Path::new("/bin/true"), &long, DEADLINE).is_ok());
    }

    #[test]
    fn a_program_is_found_outside_of_path_and_never_in_a_relative_directory() {
        let nft = find("nft", OsStr::new("/nonexistent")).unwrap();
        assert!(nft.starts_with("/usr/sbin") || nft.starts_with("/sbin"));
        assert_eq!(find("lib.rs", OsStr::new("src:.")), None);
        assert_eq!(find("no-such-program", OsStr::new("/bin")), None);
    }
}
