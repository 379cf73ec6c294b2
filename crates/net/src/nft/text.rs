//! Scripts for the program `nft`.

use std::io;
use std::path::Path;
use std::time::Duration;

use crate::program::{self, RunOptions};

const TIMEOUT: Duration = Duration::from_secs(10);
/// A long script can fail in every line; the first errors are enough.
const MAX_OUTPUT: usize = 4096;

/// Why a script failed. The kernel applies it as a whole or not at all.
#[derive(Debug, thiserror::Error)]
pub enum NftError {
    /// There is no program `nft`.
    #[error("there is no program nft in PATH or /usr/sbin: install the package nftables")]
    NotInstalled,
    /// A table that the script creates exists already.
    #[error("the nftables table exists already")]
    Exists,
    /// `nft` rejected the script.
    #[error("nft rejected the script: {stderr}")]
    Rejected {
        /// Error output of `nft`, truncated.
        stderr: String,
    },
    /// `nft` took too long and was killed.
    #[error("nft did not end within {} s and was killed", TIMEOUT.as_secs())]
    TimedOut,
    /// `nft` could not be started.
    #[error("run nft")]
    Run(#[source] io::Error),
}

/// Whether the program `nft` is installed.
pub fn is_installed() -> bool {
    program::find("nft").is_some()
}

/// Runs a script in the netns of this thread.
pub fn run(script: &str) -> Result<(), NftError> {
    let program = program::find("nft").ok_or(NftError::NotInstalled)?;
    run_program(&program, script, TIMEOUT)
}

fn run_program(program: &Path, script: &str, timeout: Duration) -> Result<(), NftError> {
    let options = RunOptions {
        stdin: script,
        timeout,
        max_output: MAX_OUTPUT,
    };
    let output = program::run(program, &["-f", "-"], options).map_err(NftError::Run)?;
    let Some(output) = output else {
        return Err(NftError::TimedOut);
    };
    if output.status.success() {
        return Ok(());
    }
    if is_existing_table(&output.stderr) {
        return Err(NftError::Exists);
    }
    let stderr = match output.stderr {
        empty if empty.is_empty() => output.status.to_string(),
        text => text,
    };
    Err(NftError::Rejected { stderr })
}

/// Whether the error is about a line that begins with `create table`, and the table exists.
fn is_existing_table(stderr: &str) -> bool {
    let lines: Vec<&str> = stderr.lines().collect();
    lines.windows(2).any(|pair| {
        pair[0].contains("Error: Could not process rule: File exists")
            && pair[1].trim_start().starts_with("create table ")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_sh(script: &str, timeout: Duration) -> Result<(), NftError> {
        // `sh -f -` reads its commands from stdin as well.
        run_program(Path::new("/bin/sh"), script, timeout)
    }

    #[test]
    fn an_existing_table_differs_from_other_errors() {
        let table = "/dev/stdin:1:19-25: Error: Could not process rule: File exists\n\
                     create table inet headcni { comment \"x\"; }\n                  ^^^^^^^\n";
        let element = "/dev/stdin:2:1-9: Error: Could not process rule: File exists\n\
                       create element inet t s { 1 }\n^^^^^^^^^\n";
        assert!(is_existing_table(table));
        assert!(!is_existing_table(element));
        assert!(!is_existing_table("File exists"));
        assert!(!is_existing_table(""));
    }

    #[test]
    fn an_error_has_the_output_of_the_program() {
        let error = run_sh("echo no such thing >&2; exit 1", TIMEOUT).unwrap_err();
        assert_eq!(error.to_string(), "nft rejected the script: no such thing");
        let error = run_sh("exit 7", TIMEOUT).unwrap_err();
        assert_eq!(error.to_string(), "nft rejected the script: exit status: 7");
    }

    #[test]
    fn long_output_is_truncated_and_does_not_block_the_program() {
        let script = "i=0; while [ $i -lt 3000 ]; do echo 0123456789012345678901234567890123456789; \
                      i=$((i + 1)); done >&2; exit 1";
        let Err(NftError::Rejected { stderr }) = run_sh(script, TIMEOUT) else {
            panic!("not rejected");
        };
        assert!(stderr.len() < MAX_OUTPUT + 8, "{}", stderr.len());
        assert!(stderr.ends_with('…'));
    }

    #[test]
    fn a_hanging_script_is_killed() {
        let error = run_sh("exec sleep 1000", Duration::from_millis(200)).unwrap_err();
        assert!(matches!(error, NftError::TimedOut), "{error}");
    }
}
