//! Child processes: run one, capture its output, or retry one that uses the network.

use std::collections::VecDeque;
use std::env;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Registries limit requests per minute, so the later pauses outlast one. Each retry of a large Go
/// module gets further, because Go keeps what it has downloaded.
const BACKOFF_SECONDS: [u64; 8] = [2, 8, 20, 20, 20, 20, 45, 90];

/// A compiler can be silent for minutes; the terminal should not be.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Parts of error messages that a later attempt may not see again.
const TRANSIENT: &[&str] = &[
    "429",
    "too many requests",
    "500 internal server error",
    "502 bad gateway",
    "503 service unavailable",
    "504 gateway",
    "connection refused",
    "connection reset",
    "connection timed out",
    "could not resolve",
    "hash sum mismatch",
    "i/o timeout",
    "network is unreachable",
    "no such host",
    "server misbehaving",
    "spurious network error",
    "temporary failure",
    "tls handshake timeout",
    "unexpected eof",
];

/// Prints a line with the seconds since `start`.
pub(crate) fn progress(start: Instant, text: &str) {
    eprintln!("[{:6.1}s] {text}", start.elapsed().as_secs_f64());
}

/// Runs a command and fails if it fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let text = describe(command);
    eprintln!("+ {text}");
    let status = command.status().with_context(|| format!("start {text}"))?;
    if !status.success() {
        bail!("{text}: {status}");
    }
    Ok(())
}

/// Runs a command and returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let text = describe(command);
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("start {text}"))?;
    if !output.status.success() {
        bail!("{text}: {}", output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("{text} printed no UTF-8"))
}

/// Runs a command that uses the network; retries with back-off while the network is at fault.
pub(crate) fn run_with_retry(
    start: Instant,
    what: &str,
    mut command: impl FnMut() -> Command,
) -> Result<()> {
    let mut pauses = BACKOFF_SECONDS.iter();
    loop {
        let mut command = command();
        let text = describe(&command);
        let (status, tail) =
            run_with_progress(start, what, &mut command).with_context(|| format!("run {text}"))?;
        if status.success() {
            return Ok(());
        }
        let tail = Vec::from(tail).join("\n");
        match pauses.next().filter(|_| is_transient(&tail)) {
            Some(seconds) => {
                progress(start, &format!("{what}: {status}, retrying in {seconds} s"));
                thread::sleep(Duration::from_secs(*seconds));
            }
            None => bail!("{text}: {status}\n{tail}"),
        }
    }
}

fn is_transient(output: &str) -> bool {
    let output = output.to_lowercase();
    TRANSIENT.iter().any(|sign| output.contains(sign))
}

/// Shows a command's lines as they come and returns the last of them for the error.
fn run_with_progress(
    start: Instant,
    what: &str,
    command: &mut Command,
) -> Result<(ExitStatus, VecDeque<String>)> {
    const TAIL: usize = 20;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let (sender, lines) = channel();
    if let Some(pipe) = child.stdout.take() {
        forward(pipe, sender.clone());
    }
    if let Some(pipe) = child.stderr.take() {
        forward(pipe, sender);
    }
    let mut tail = VecDeque::new();
    loop {
        match lines.recv_timeout(HEARTBEAT) {
            Ok(line) => {
                progress(start, &format!("{what}: {line}"));
                if tail.len() == TAIL {
                    tail.pop_front();
                }
                tail.push_back(line);
            }
            Err(RecvTimeoutError::Timeout) => progress(start, &format!("{what}: still running")),
            Err(RecvTimeoutError::Disconnected) => return Ok((child.wait()?, tail)),
        }
    }
}

fn forward(pipe: impl Read + Send + 'static, lines: Sender<String>) {
    thread::spawn(move || {
        // An unreadable line ends the display only: the exit status decides.
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            if lines.send(line).is_err() {
                break;
            }
        }
    });
}

/// The command line without directories, and without the environment that sudo is given.
pub(crate) fn describe(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut words = vec![program.file_name().unwrap_or_default().to_string_lossy()];
    let args = command.get_args().map(OsStr::to_string_lossy);
    // A shell script as argument is not worth a screen.
    let args = args.map(|arg| {
        if arg.contains('\n') {
            "…".into()
        } else {
            arg
        }
    });
    if words[0] == "sudo" {
        words.extend(args.skip_while(|arg| arg == "--" || arg == "env" || arg.contains('=')));
    } else {
        words.extend(args);
    }
    words.join(" ")
}

/// Whether a program is in `PATH`.
pub(crate) fn is_in_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_a_busy_registry_are_transient() {
        assert!(is_transient(
            "E: Failed to fetch x.deb  429  Too Many Requests"
        ));
        assert!(is_transient(
            "dial tcp: lookup proxy: Temporary failure in name resolution"
        ));
    }

    #[test]
    fn an_unknown_package_is_not_transient() {
        assert!(!is_transient("E: Unable to locate package nftablez"));
        assert!(!is_transient("module lookup: 404 Not Found"));
    }

    #[test]
    fn the_error_ends_with_the_last_lines_of_output() {
        let exit_3 = || {
            let mut shell = Command::new("sh");
            shell.args(["-c", "echo reason >&2; exit 3"]);
            shell
        };
        let error = run_with_retry(Instant::now(), "test", exit_3).unwrap_err();
        assert!(
            error.to_string().ends_with("exit status: 3\nreason"),
            "{error}"
        );
    }
}
