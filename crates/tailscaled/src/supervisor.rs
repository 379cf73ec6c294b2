//! Starts, adopts, restarts and stops a tailscaled process.
//!
//! A restart interrupts the node's traffic for seconds, so tailscaled outlives this process: it has
//! its own process group, logs to a file, and is recorded in its state directory, from which the next
//! [`Supervisor`] adopts it. See README.md.

mod drift;
mod error;
mod listener;
mod process;
mod spawn;
mod spec;
mod state_dir;

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

use crate::backoff::Backoff;
use listener::Listener;
use process::{Identity, Process};
use state_dir::StateDir;

pub use drift::Drift;
pub use error::Error;
pub use spec::TailscaledSpec;

const LOG_CHECK_INTERVAL: Duration = Duration::from_secs(15);
/// tailscaled removes its rules and routes on SIGTERM.
const TERM_TIMEOUT: Duration = Duration::from_secs(10);
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// Delays before a restart.
const MIN_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_secs(30);
/// A process that ran this long did not fail at its start.
const STABLE_AFTER: Duration = Duration::from_mins(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessOrigin {
    /// An earlier supervisor started it.
    Adopted,
    Started,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningProcess {
    pub pid: u32,
    pub origin: ProcessOrigin,
    /// How it differs from the spec. Only [`Supervisor::restart`] changes that.
    pub drift: Vec<Drift>,
}

#[derive(Debug)]
pub enum SupervisorEvent {
    Running(RunningProcess),
    Exited {
        pid: u32,
        /// Exit status or signal. The kernel reports it only to the parent, so not for an adopted process.
        status: Option<String>,
        restart_in: Duration,
    },
    /// The process could not be started or watched.
    Failed {
        error: Error,
        retry_in: Duration,
    },
}

/// Restarts tailscaled when it exits. Dropping the supervisor leaves tailscaled running.
#[derive(Debug)]
pub struct Supervisor {
    spec: Arc<TailscaledSpec>,
    process: Option<Process>,
    /// When the process was started or adopted.
    since: Instant,
    next_start: Instant,
    backoff: Backoff,
    next_log_check: Instant,
}

impl Supervisor {
    /// Does nothing before [`ensure`](Self::ensure) or [`next`](Self::next).
    pub fn new(spec: TailscaledSpec) -> Self {
        let now = Instant::now();
        Self {
            spec: Arc::new(spec),
            process: None,
            since: now,
            next_start: now,
            backoff: Backoff::new(MIN_DELAY, MAX_DELAY, STABLE_AFTER),
            next_log_check: now,
        }
    }

    pub fn spec(&self) -> &TailscaledSpec {
        &self.spec
    }

    /// Takes effect at the next start.
    pub fn set_spec(&mut self, spec: TailscaledSpec) {
        self.spec = Arc::new(spec);
    }

    /// Adopts the running process, or starts one. Safe to call from two supervisors at the same time.
    pub async fn ensure(&mut self) -> Result<RunningProcess, Error> {
        let spec = Arc::clone(&self.spec);
        let listener = Listener::on(&spec.socket).await;
        let (identity, running) = blocking(move || spec.ensure(listener)).await?;
        let process = Process::open(identity).map_err(Error::process("watch", identity.pid))?;
        let exited = || io::Error::other("it exited immediately: see its log");
        let process = process.ok_or_else(|| Error::process("watch", identity.pid)(exited()))?;
        self.process = Some(process);
        self.since = Instant::now();
        Ok(running)
    }

    /// Keeps the process running until the next event. Cancel-safe: the next call adopts a process that
    /// was being started.
    pub async fn next(&mut self) -> SupervisorEvent {
        loop {
            let Some(process) = &self.process else {
                sleep_until(self.next_start).await;
                match self.ensure().await {
                    Ok(running) => return SupervisorEvent::Running(running),
                    Err(error) => return self.failed(error),
                }
            };
            let pid = process.identity.pid;
            tokio::select! {
                exit = process.exited() => {
                    self.process = None;
                    match exit {
                        Ok(status) => {
                            let restart_in = self.restart_delay(self.since.elapsed());
                            return SupervisorEvent::Exited { pid, status, restart_in };
                        }
                        Err(error) => return self.failed(Error::process("watch", pid)(error)),
                    }
                }
                () = sleep_until(self.next_log_check) => {
                    self.next_log_check = Instant::now() + LOG_CHECK_INTERVAL;
                    if let Err(error) = self.rotate_log().await {
                        tracing::warn!(%error, "failed to rotate the tailscaled log");
                    }
                }
            }
        }
    }

    /// Rotates the log if it exceeds its limit. [`next`](Self::next) does this regularly.
    pub async fn rotate_log(&self) -> Result<(), Error> {
        let spec = Arc::clone(&self.spec);
        blocking(move || spec.state().rotate_log(spec.log_limit_bytes)).await
    }

    /// Stops the process, if one runs, whichever supervisor started it. [`next`](Self::next) would start
    /// it again.
    pub async fn stop(&mut self) -> Result<(), Error> {
        self.terminate(&[(Signal::TERM, TERM_TIMEOUT), (Signal::KILL, KILL_TIMEOUT)])
            .await
    }

    async fn terminate(&mut self, signals: &[(Signal, Duration)]) -> Result<(), Error> {
        let spec = Arc::clone(&self.spec);
        let found = blocking(move || {
            // The process may use another state directory, and this must not create ours.
            let has_dir = spec.state_dir.exists();
            let lock = has_dir.then(|| spec.state().lock()).transpose()?;
            Ok((lock, spec.find()))
        })
        .await?;
        self.process = None;
        let (lock, found) = found;
        if let Some(identity) = found {
            terminate(identity, signals).await?;
        }
        self.spec.state().remove_record()?;
        // Until here no other supervisor may start a process.
        drop::<Option<File>>(lock);
        Ok(())
    }

    /// Stops the process and starts it according to the spec.
    pub async fn restart(&mut self) -> Result<RunningProcess, Error> {
        self.stop().await?;
        self.ensure().await
    }

    /// Restarts with SIGKILL, so that tailscaled does not remove its rules: another tailscaled in the same
    /// netns uses the same ones.
    pub async fn kill_and_restart(&mut self) -> Result<RunningProcess, Error> {
        self.terminate(&[(Signal::KILL, KILL_TIMEOUT)]).await?;
        self.ensure().await
    }

    fn failed(&mut self, error: Error) -> SupervisorEvent {
        let retry_in = self.restart_delay(Duration::ZERO);
        SupervisorEvent::Failed { error, retry_in }
    }

    /// A process that was stable is restarted at once: each second without it is one without traffic.
    fn restart_delay(&mut self, uptime: Duration) -> Duration {
        let delay = if self.backoff.is_stable(uptime) {
            self.backoff.reset();
            Duration::ZERO
        } else {
            self.backoff.after(uptime)
        };
        self.next_start = Instant::now() + delay;
        delay
    }
}

impl TailscaledSpec {
    fn state(&self) -> StateDir {
        StateDir(self.state_dir.clone())
    }

    /// Blocks.
    fn ensure(&self, listener: Option<Listener>) -> Result<(Identity, RunningProcess), Error> {
        let state = self.state();
        state.ensure()?;
        let _lock = state.lock()?;
        let variables = self.variables(|name| std::env::var_os(name));
        let (identity, origin) = if let Some(identity) = self.find() {
            (identity, ProcessOrigin::Adopted)
        } else if let Some(Listener { pid }) = listener {
            // A second tailscaled would remove the rules of the first before it fails to bind the socket.
            let socket = self.socket.clone();
            return Err(Error::SocketInUse { socket, pid });
        } else {
            warn_only(state.rotate_log(self.log_limit_bytes));
            let identity = self.spawn(&variables, warn_only(state.open_log()))?;
            (identity, ProcessOrigin::Started)
        };
        if state.record() != Some(identity) {
            // Without the record the process is found in /proc.
            warn_only(state.write_record(identity));
        }
        let drift = match origin {
            ProcessOrigin::Adopted => self.drift(identity, &variables),
            ProcessOrigin::Started => Vec::new(),
        };
        let running = RunningProcess {
            pid: identity.pid,
            origin,
            drift,
        };
        Ok((identity, running))
    }

    /// The recorded process, or else one found in /proc: a supervisor may have died before it wrote the
    /// record, or the state directory was changed.
    fn find(&self) -> Option<Identity> {
        let recorded = self.state().record();
        let is_alive = |identity: &Identity| Identity::of(identity.pid) == Some(*identity);
        if let Some(identity) = recorded.filter(is_alive)
            && self.matches(identity)
        {
            return Some(identity);
        }
        let all = process::all().unwrap_or_default();
        all.into_iter().find(|identity| self.matches(*identity))
    }
}

/// A full disk must not keep a node out of the tailnet.
fn warn_only<T>(outcome: Result<T, Error>) -> Option<T> {
    let warn = |error: &Error| {
        let source = std::error::Error::source(error).map(ToString::to_string);
        tracing::warn!(%error, source, "continuing without a tailscaled state file");
    };
    outcome.inspect_err(warn).ok()
}

/// Sends the signals one after the other until the process exits.
async fn terminate(identity: Identity, signals: &[(Signal, Duration)]) -> Result<(), Error> {
    let pid = identity.pid;
    let Some(process) = Process::open(identity).map_err(Error::process("stop", pid))? else {
        return Ok(());
    };
    for (signal, wait) in signals {
        process
            .signal(*signal)
            .map_err(Error::process("stop", pid))?;
        let exited = process.exited_within(*wait).await;
        if exited.map_err(Error::process("wait for", pid))? {
            return Ok(());
        }
    }
    Err(Error::StillRunning {
        pid,
        waited: KILL_TIMEOUT,
    })
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is shutting down.
            Err(_) => std::future::pending().await,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stable_process_is_restarted_at_once() {
        let spec = TailscaledSpec::new("/bin/tailscaled", "/var/lib/x", "/run/x.sock");
        let mut supervisor = Supervisor::new(spec);
        let mut seconds = |uptime| {
            supervisor
                .restart_delay(Duration::from_secs(uptime))
                .as_secs()
        };
        assert_eq!([seconds(3), seconds(3)], [1, 2]);
        assert_eq!([seconds(3600), seconds(3)], [0, 1]);
    }
}
