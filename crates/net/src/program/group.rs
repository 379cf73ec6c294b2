//! A program and its descendants: one process group, which ends with this process at the latest.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, getpid, getppid, kill_process_group, set_parent_process_death_signal,
};

/// Poll interval for a program that has closed its output and not exited yet.
const POLL: Duration = Duration::from_millis(1);
/// How long to wait for a killed process, which may be stuck in the kernel.
const AFTER_KILL: Duration = Duration::from_secs(1);

/// Process groups by leader. No leader has been reaped, so no other process can have its ID.
static RUNNING: Mutex<Running> = Mutex::new(Running {
    leaders: BTreeSet::new(),
    is_ending: false,
});

struct Running {
    leaders: BTreeSet<i32>,
    is_ending: bool,
}

fn running() -> MutexGuard<'static, Running> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills all running programs with their descendants, and lets no other one start: for the end of this
/// process.
pub fn kill_all() {
    let mut running = running();
    running.is_ending = true;
    for leader in &running.leaders {
        kill(*leader);
    }
}

fn kill(leader: i32) {
    if let Some(group) = Pid::from_raw(leader) {
        // Fails only if no process of the group is left.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

pub(super) struct Group {
    pub(super) leader: Child,
}

impl Group {
    /// Starts a program in a process group of its own.
    pub(super) fn spawn(command: &mut Command) -> io::Result<Self> {
        die_with_us(command.process_group(0));
        let mut running = running();
        if running.is_ending {
            return Err(io::Error::other("this process is ending"));
        }
        let leader = command.spawn()?;
        running
            .leaders
            .insert(Pid::from_child(&leader).as_raw_pid());
        Ok(Self { leader })
    }

    /// Waits for the program; `None` if it has not exited by then.
    pub(super) fn wait_until(&mut self, end: Instant) -> io::Result<Option<ExitStatus>> {
        loop {
            if let Some(status) = self.try_wait()? {
                return Ok(Some(status));
            }
            if Instant::now() >= end {
                return Ok(None);
            }
            thread::sleep(POLL);
        }
    }

    fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        let number = Pid::from_child(&self.leader).as_raw_pid();
        let mut running = running();
        let status = self.leader.try_wait()?;
        if status.is_some() {
            running.leaders.remove(&number);
        }
        Ok(status)
    }

    /// Kills the program with its descendants.
    pub(super) fn kill(mut self) {
        {
            let running = running();
            let number = Pid::from_child(&self.leader).as_raw_pid();
            if running.leaders.contains(&number) {
                kill(number);
            }
        }
        let outcome = self.wait_until(Instant::now() + AFTER_KILL);
        if matches!(outcome, Ok(None)) {
            // Reap it later, without blocking the caller.
            thread::spawn(move || {
                while !matches!(self.try_wait(), Ok(Some(_)) | Err(_)) {
                    thread::sleep(AFTER_KILL);
                }
            });
        }
    }
}

/// Makes the kernel kill the program when the thread that waits for it ends, as after `kill -9`.
#[expect(unsafe_code, reason = "the standard library has no safe call for it")]
fn die_with_us(command: &mut Command) {
    let parent = getpid();
    let arm = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent has ended before the call.
        if getppid() != Some(parent) {
            return Err(Errno::SRCH.into());
        }
        Ok(())
    };
    // SAFETY: between fork and exec it makes two system calls, and neither allocates nor locks.
    unsafe {
        command.pre_exec(arm);
    }
}
