//! Child processes with a deadline and their own process group, so that they cannot hang a test.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{self, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, PidfdFlags, Signal};

/// The default deadline of a command.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// How long the pipes of a killed process group may stay open.
const AFTER_KILL: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub struct Output {
    pub status: ExitStatus,
    /// With invalid UTF-8 replaced.
    pub stdout: String,
    /// With invalid UTF-8 replaced.
    pub stderr: String,
}

/// A running command. Drop kills its process group.
#[derive(Debug)]
pub struct Running {
    line: String,
    pid: Pid,
    // A PID may be reused.
    pidfd: OwnedFd,
    end: Receiver<io::Result<process::Output>>,
    ended: bool,
}

impl Running {
    pub fn spawn(command: &mut Command, stdin: &[u8]) -> Result<Self> {
        let line = command_line(command);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .with_context(|| format!("start {line}"))?;
        let pid = Pid::from_child(&child);
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())
            .with_context(|| format!("open process {pid:?} of {line}"))?;

        // Writing more than the pipe holds would block if the child never reads.
        let pipe = child.stdin.take();
        let stdin = stdin.to_vec();
        thread::spawn(move || pipe.map(|mut pipe| pipe.write_all(&stdin)));

        let (sender, end) = mpsc::channel();
        thread::spawn(move || sender.send(child.wait_with_output()));
        Ok(Self {
            line,
            pid,
            pidfd,
            end,
            ended: false,
        })
    }

    /// The same on the host and in the node: they share a PID namespace.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Sends SIGKILL to this process alone, not to its children.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Does nothing if the process has ended.
    pub fn signal(&self, signal: Signal) {
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, signal);
    }

    /// Sends SIGKILL to the process group.
    pub fn kill_group(&self) {
        let _ = rustix::process::kill_process_group(self.pid, Signal::KILL);
    }

    /// Waits until it has ended and its output is closed, so also for children that outlive it. After
    /// `deadline` the group is killed.
    pub fn wait(mut self, deadline: Duration) -> Result<Output> {
        let mut end = self.end.recv_timeout(deadline);
        let in_time = end.is_ok();
        if !in_time {
            self.kill_group();
            end = self.end.recv_timeout(AFTER_KILL);
        }
        self.ended = true;
        let end = end
            .with_context(|| format!("{}: output still open after kill -9", self.line))?
            .with_context(|| format!("wait for {}", self.line))?;
        let output = Output {
            status: end.status,
            stdout: String::from_utf8_lossy(&end.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&end.stderr).into_owned(),
        };
        if !in_time {
            bail!(
                "{}: killed after {deadline:?}{}",
                self.line,
                streams(&output)
            );
        }
        Ok(output)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            self.kill_group();
        }
    }
}

/// Runs a command to its end, whatever its exit status, within [`DEADLINE`].
pub fn attempt(command: &mut Command) -> Result<Output> {
    Running::spawn(command, b"")?.wait(DEADLINE)
}

/// Runs a command that must succeed within [`DEADLINE`].
pub fn run(command: &mut Command) -> Result<Output> {
    let output = attempt(command)?;
    if !output.status.success() {
        bail!(
            "{}: {}{}",
            command_line(command),
            output.status,
            streams(&output)
        );
    }
    Ok(output)
}

fn command_line(command: &Command) -> String {
    let words = [command.get_program()]
        .into_iter()
        .chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

fn streams(output: &Output) -> String {
    let quote = |name, text: &str| match text.trim_end() {
        "" => String::new(),
        text => format!("\n{name}: {text}"),
    };
    quote("stdout", &output.stdout) + &quote("stderr", &output.stderr)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_command_that_hangs_fails_with_its_output() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo so far >&2; sleep 1000 & sleep 1000"]);
        let start = Instant::now();
        let running = Running::spawn(&mut command, b"").unwrap();
        let error = running.wait(Duration::from_millis(200)).unwrap_err();
        assert!(start.elapsed() < AFTER_KILL, "the grandchild held the pipe");
        assert!(
            error
                .to_string()
                .ends_with("killed after 200ms\nstderr: so far"),
            "{error}"
        );
    }

    #[test]
    fn killing_a_process_leaves_its_children_running() {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "exec 3<&0; (read line <&3; echo child got $line) & kill -9 $$",
        ]);
        let output = Running::spawn(&mut command, b"it\n")
            .unwrap()
            .wait(DEADLINE)
            .unwrap();
        assert_eq!(output.status.signal(), Some(9));
        assert_eq!(output.stdout, "child got it\n");
    }

    #[test]
    fn unread_input_does_not_block() {
        let mut command = Command::new("true");
        let running = Running::spawn(&mut command, &vec![b' '; 1 << 20]).unwrap();
        assert!(running.wait(DEADLINE).unwrap().status.success());
    }

    #[test]
    fn the_error_of_a_failed_command_has_its_stderr() {
        let error = run(Command::new("ls").arg("/nonexistent")).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("ls /nonexistent: exit status: 2\nstderr: "),
            "{error}"
        );
    }
}
