//! Runs a program with a deadline: stdin given, stdout taken, stderr passed on.

use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::{Env, MAX_DOCUMENT_BYTES};

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
        // A thread, because a program that doesn't read must not hold us up. A failed write
        // means that it ended early; its exit tells why.
        spawned(&mut child, move || {
            let _ = pipe.write_all(&stdin);
        })?;
    }
    let (sender, receiver) = mpsc::channel();
    if let Some(pipe) = child.stdout.take() {
        spawned(&mut child, move || {
            let mut stdout = Vec::new();
            let read = pipe.take(MAX_DOCUMENT_BYTES + 1).read_to_end(&mut stdout);
            let _ = sender.send(read.map(|_| stdout));
        })?;
    }

    let stdout = match receiver.recv_timeout(timeout) {
        Ok(Ok(stdout)) if stdout.len() as u64 > MAX_DOCUMENT_BYTES => {
            end(&mut child);
            return Ok(Finished::TooMuch);
        }
        Ok(Ok(stdout)) => stdout,
        Ok(Err(error)) => {
            end(&mut child);
            return Err(error);
        }
        Err(_) => {
            end(&mut child);
            return Ok(Finished::TimedOut);
        }
    };
    let Some(status) = wait_until(&mut child, deadline)? else {
        end(&mut child);
        return Ok(Finished::TimedOut);
    };
    Ok(Finished::Exited { status, stdout })
}

/// Starts a thread, or ends the child that it was to serve.
fn spawned(child: &mut Child, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    match thread::Builder::new().spawn(work) {
        Ok(_) => Ok(()),
        Err(error) => {
            end(child);
            Err(error)
        }
    }
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
    let _ = child.wait();
    // Grandchildren are reaped by init. Bounded, because one may be stuck in the kernel.
    let deadline = Instant::now() + Duration::from_secs(2);
    while test_kill_process_group(group).is_ok() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(not(unix))]
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}
