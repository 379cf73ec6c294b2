//! Running other programs: plainly, for their output, or patiently when they use the network.

use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Waits between tries. Registries count requests per minute, so the later ones outlast that. There
/// are many of them because a large Go module asks for hundreds of files, and each try gets further.
const BACK_OFF: [Duration; 8] = [
    Duration::from_secs(2),
    Duration::from_secs(8),
    Duration::from_secs(20),
    Duration::from_secs(20),
    Duration::from_secs(20),
    Duration::from_secs(20),
    Duration::from_secs(45),
    Duration::from_secs(90),
];

/// A compiler may be silent for minutes; the person watching should not be.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// What registries and resolvers say when the same request may well succeed later.
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

/// Says what happens, with the time since the program began.
pub(crate) fn say(start: Instant, text: &str) {
    eprintln!("[{:6.1}s] {text}", start.elapsed().as_secs_f64());
}

/// Whether this process may do what tests and package installation do.
pub(crate) fn is_root() -> Result<bool> {
    Ok(fs::metadata("/proc/self").context("read /proc/self")?.uid() == 0)
}

/// Runs a command to its end and fails if it does.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let text = describe(command);
    eprintln!("+ {text}");
    let status = command.status().with_context(|| format!("start {text}"))?;
    if !status.success() {
        bail!("{text}: {status}");
    }
    Ok(())
}

/// Runs a command for its standard output.
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

/// Runs a command that uses the network, again and again while the network is to blame.
pub(crate) fn run_patiently(
    start: Instant,
    what: &str,
    mut command: impl FnMut() -> Command,
) -> Result<()> {
    let mut waits = BACK_OFF.iter();
    loop {
        let mut command = command();
        let text = describe(&command);
        let (status, tail) =
            watch(start, what, &mut command).with_context(|| format!("run {text}"))?;
        if status.success() {
            return Ok(());
        }
        let tail = Vec::from(tail).join("\n");
        match waits.next().filter(|_| is_transient(&tail)) {
            Some(wait) => {
                say(
                    start,
                    &format!("{what}: {status}, trying again in {} s", wait.as_secs()),
                );
                thread::sleep(*wait);
            }
            None => bail!("{text}: {status}\n{tail}"),
        }
    }
}

fn is_transient(output: &str) -> bool {
    let output = output.to_lowercase();
    TRANSIENT.iter().any(|sign| output.contains(sign))
}

/// Shows a command's lines as they come and keeps the last of them for the error.
fn watch(
    start: Instant,
    what: &str,
    command: &mut Command,
) -> Result<(std::process::ExitStatus, VecDeque<String>)> {
    const KEPT: usize = 20;
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
                say(start, &format!("{what}: {line}"));
                if tail.len() == KEPT {
                    tail.pop_front();
                }
                tail.push_back(line);
            }
            Err(RecvTimeoutError::Timeout) => say(start, &format!("{what}: still at it")),
            Err(RecvTimeoutError::Disconnected) => return Ok((child.wait()?, tail)),
        }
    }
}

fn forward(pipe: impl Read + Send + 'static, lines: Sender<String>) {
    thread::spawn(move || {
        // A line that cannot be read, or that nobody waits for any more, ends the display only:
        // the exit status decides.
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            if lines.send(line).is_err() {
                break;
            }
        }
    });
}

fn describe(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut words = vec![program.file_name().unwrap_or_default().to_string_lossy()];
    words.extend(command.get_args().map(|arg| arg.to_string_lossy()));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_busy_registry_says_is_transient() {
        assert!(is_transient(
            "E: Failed to fetch x.deb  429  Too Many Requests"
        ));
        assert!(is_transient(
            "dial tcp: lookup proxy: Temporary failure in name resolution"
        ));
    }

    #[test]
    fn what_will_not_change_is_lasting() {
        assert!(!is_transient("E: Unable to locate package nftablez"));
        assert!(!is_transient("module lookup: 404 Not Found"));
    }

    #[test]
    fn the_end_of_the_output_is_in_the_error() {
        let exit_3 = || {
            let mut shell = Command::new("sh");
            shell.args(["-c", "echo reason >&2; exit 3"]);
            shell
        };
        let error = run_patiently(Instant::now(), "test", exit_3).unwrap_err();
        assert!(
            error.to_string().ends_with("exit status: 3\nreason"),
            "{error}"
        );
    }
}
