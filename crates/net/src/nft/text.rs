//! Scripts for the program `nft`.

use std::io;
use std::path::Path;
use std::time::Duration;

use crate::program::{self, Terms};

const DEADLINE: Duration = Duration::from_secs(10);
/// A script of thousands of lines can fail in each of them; the first tell enough.
const MAX_WORDS: usize = 4096;

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
    program::find("nft").is_some()
}

/// Has `nft` do a script, all of it or nothing, in the namespace of this thread.
pub fn run(script: &str) -> Result<(), NftError> {
    let program = program::find("nft").ok_or(NftError::NotInstalled)?;
    run_program(&program, script, DEADLINE)
}

fn run_program(program: &Path, script: &str, deadline: Duration) -> Result<(), NftError> {
    let terms = Terms {
        stdin: script,
        deadline,
        max_output: MAX_WORDS,
    };
    let ended = program::run(program, &["-f", "-"], terms).map_err(NftError::Run)?;
    let Some(ended) = ended else {
        return Err(NftError::TimedOut);
    };
    if ended.status.success() {
        return Ok(());
    }
    if creates_what_exists(&ended.stderr) {
        return Err(NftError::Exists);
    }
    let stderr = match ended.stderr {
        words if words.is_empty() => ended.status.to_string(),
        words => words,
    };
    Err(NftError::Refused { stderr })
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
    fn a_script_that_hangs_is_killed() {
        let error = run_sh("exec sleep 1000", Duration::from_millis(200)).unwrap_err();
        assert!(matches!(error, NftError::TimedOut), "{error}");
    }
}
