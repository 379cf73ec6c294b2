//! A program and whatever it starts: one process group, which ends with us at the latest.

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

/// How often a process is looked at that has closed its output and not ended yet.
const PAUSE: Duration = Duration::from_millis(1);
/// How long a killed process is waited for: it may be stuck in the kernel.
const AFTER_KILL: Duration = Duration::from_secs(1);

/// The groups of this process, by their leaders. A leader in it has not been waited for, so that its
/// number is nobody else's.
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

/// Kills every program that runs, with whatever it has started, and lets no other one begin: for the
/// end of this process.
pub fn end_all() {
    let mut running = running();
    running.is_ending = true;
    for leader in &running.leaders {
        kill(*leader);
    }
}

fn kill(leader: i32) {
    if let Some(group) = Pid::from_raw(leader) {
        // It fails only if nobody is left.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// A program that runs.
pub(super) struct Group {
    pub(super) leader: Child,
}

impl Group {
    /// Starts a program in a group of its own.
    pub(super) fn spawn(command: &mut Command) -> io::Result<Self> {
        die_with_us(command.process_group(0));
        let mut running = running();
        if running.is_ending {
            return Err(io::Error::other("this process ends"));
        }
        let leader = command.spawn()?;
        running
            .leaders
            .insert(Pid::from_child(&leader).as_raw_pid());
        Ok(Self { leader })
    }

    /// Waits for the program; nothing if it has not ended by then.
    pub(super) fn wait_until(&mut self, end: Instant) -> io::Result<Option<ExitStatus>> {
        loop {
            if let Some(status) = self.try_wait()? {
                return Ok(Some(status));
            }
            if Instant::now() >= end {
                return Ok(None);
            }
            thread::sleep(PAUSE);
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

    /// Kills the program with whatever it has started.
    pub(super) fn end(mut self) {
        {
            let running = running();
            let number = Pid::from_child(&self.leader).as_raw_pid();
            if running.leaders.contains(&number) {
                kill(number);
            }
        }
        let outcome = self.wait_until(Instant::now() + AFTER_KILL);
        if matches!(outcome, Ok(None)) {
            // Nobody is held up by it, and it is waited for all the same.
            thread::spawn(move || {
                while !matches!(self.try_wait(), Ok(Some(_)) | Err(_)) {
                    thread::sleep(AFTER_KILL);
                }
            });
        }
    }
}

/// Has the kernel kill the program when the thread ends that waits for it, as at a `kill -9` of this
/// process.
#[expect(unsafe_code, reason = "the standard library has no safe way to say it")]
fn die_with_us(command: &mut Command) {
    let parent = getpid();
    let ask = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // Too late to be told: we are gone already.
        if getppid() != Some(parent) {
            return Err(Errno::SRCH.into());
        }
        Ok(())
    };
    // SAFETY: between fork and exec it makes two system calls, and neither allocates nor locks.
    unsafe {
        command.pre_exec(ask);
    }
}
