//! Runs a program with a deadline: stdin given, stdout taken, stderr passed on.

use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Env, MAX_DOCUMENT_BYTES};

/// What every pipe takes at once, whether anybody reads it or not.
const PIPE_BYTES: usize = 4096;

/// How the program ended.
pub(super) enum Finished {
    /// By itself.
    Exited { status: ExitStatus, stdout: Vec<u8> },
    /// By us, at the deadline.
    TimedOut,
    /// By us, because it printed without end.
    TooMuch,
}

/// Runs `program` with exactly the environment `env`.
///
/// When it is ended here, so is everything that it started: whatever runs on could make
/// something after its undoing.
pub(super) fn run(
    program: &Path,
    env: &Env,
    stdin: Vec<u8>,
    timeout: Duration,
) -> io::Result<Finished> {
    let deadline = Instant::now() + timeout;
    let mut command = Command::new(program);
    command
        .env_clear()
        .envs(env.iter())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = command.spawn()?;

    if let Some(mut pipe) = child.stdin.take() {
        // A failed write means that it ended early; its exit tells why.
        if stdin.len() <= PIPE_BYTES {
            let _ = pipe.write_all(&stdin);
        } else {
            // A program that doesn't read must not hold us up.
            let write = move || drop(pipe.write_all(&stdin));
            if let Err(error) = thread::Builder::new().spawn(write) {
                end(&mut child);
                return Err(error);
            }
        }
    }
    let stdout = match child.stdout.take().map(|pipe| read_until(pipe, deadline)) {
        None => Vec::new(),
        Some(Ok(Some(stdout))) if stdout.len() as u64 > MAX_DOCUMENT_BYTES => {
            end(&mut child);
            return Ok(Finished::TooMuch);
        }
        Some(Ok(Some(stdout))) => stdout,
        Some(Ok(None)) => {
            end(&mut child);
            return Ok(Finished::TimedOut);
        }
        Some(Err(error)) => {
            end(&mut child);
            return Err(error);
        }
    };
    let Some(status) = wait_until(&mut child, deadline)? else {
        end(&mut child);
        return Ok(Finished::TimedOut);
    };
    Ok(Finished::Exited { status, stdout })
}

/// Reads to the end, or to a byte beyond what is allowed; `None` if that takes too long.
#[cfg(unix)]
fn read_until(mut pipe: ChildStdout, deadline: Instant) -> io::Result<Option<Vec<u8>>> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    let mut stdout = Vec::new();
    let mut chunk = [0; 8192];
    while stdout.len() as u64 <= MAX_DOCUMENT_BYTES {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&pipe, PollFlags::IN)], Some(&left)) {
            Err(rustix::io::Errno::INTR) => continue,
            Ok(0) => return Ok(None),
            polled => polled?,
        };
        match pipe.read(&mut chunk)? {
            0 => break,
            count => stdout.extend_from_slice(&chunk[..count]),
        }
    }
    Ok(Some(stdout))
}

#[cfg(not(unix))]
fn read_until(pipe: ChildStdout, deadline: Instant) -> io::Result<Option<Vec<u8>>> {
    let (sender, receiver) = std::sync::mpsc::channel();
    thread::Builder::new().spawn(move || {
        let mut stdout = Vec::new();
        let read = pipe.take(MAX_DOCUMENT_BYTES + 1).read_to_end(&mut stdout);
        let _ = sender.send(read.map(|_| stdout));
    })?;
    let left = deadline.saturating_duration_since(Instant::now());
    receiver
        .recv_timeout(left)
        .map_or(Ok(None), |read| read.map(Some))
}

/// Waits for a child that has closed its stdout: as a rule it ends in the same breath.
fn wait_until(child: &mut Child, deadline: Instant) -> io::Result<Option<ExitStatus>> {
    let mut pause = Duration::from_micros(50);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}

/// Ends the child and its whole process group, and returns when they are gone.
#[cfg(unix)]
fn end(child: &mut Child) {
    use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

    let group = Pid::from_child(child);
    // Fails only if nobody is left, which is what we want.
    let _ = kill_process_group(group, Signal::KILL);
    // Bounded, because one may be stuck in the kernel. Grandchildren are reaped by init.
    let deadline = Instant::now() + Duration::from_secs(2);
    let _ = wait_until(child, deadline);
    while test_kill_process_group(group).is_ok() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(not(unix))]
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}
