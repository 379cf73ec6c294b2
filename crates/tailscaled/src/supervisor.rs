//! A tailscaled as a process: started, adopted, restarted, stopped.
//!
//! A restart of it costs the node seconds of traffic, so it lives on when we end: it has a process
//! group of its own, writes to a file and not to us, and is written down, so that the next
//! [`Supervisor`] knows it again. Whether it is a member of a mesh is not known here; see
//! [`localapi`](crate::localapi).
//!
//! A service manager that ends a whole group of processes ends it, too: with systemd,
//! `KillMode=process` prevents that.

mod backoff;
mod difference;
mod error;
mod files;
mod listener;
mod options;
mod process;
mod spawn;

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

use backoff::Backoff;
use files::StateDir;
use listener::Listener;
use process::{Identity, Process};

pub use difference::Difference;
pub use error::Error;
pub use options::Tailscaled;

/// How often the log is looked at.
const LOG_LOOK: Duration = Duration::from_secs(15);
/// How long it may take to clean up after itself.
const TERM_WAIT: Duration = Duration::from_secs(10);
/// How long the kernel may take to end it.
const KILL_WAIT: Duration = Duration::from_secs(5);

/// Where a process comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It was running: an earlier supervisor has started it.
    Adopted,
    /// We have started it.
    Started,
}

/// A process that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ensured {
    /// Its number.
    pub pid: u32,
    /// Where it comes from.
    pub origin: Origin,
    /// What of it is not as it should be: [`Supervisor::restart`] puts that right, and costs
    /// traffic.
    pub differences: Vec<Difference>,
}

/// What has happened.
#[derive(Debug)]
pub enum Event {
    /// It runs.
    Running(Ensured),
    /// It has ended.
    Ended {
        /// The number that it had.
        pid: u32,
        /// How, if that can be known: only the parent is told.
        how: Option<String>,
        /// When it is started again.
        again_in: Duration,
    },
    /// It could not be started, or looked after; it is tried again.
    Failed {
        /// Why.
        error: Error,
        /// When.
        again_in: Duration,
    },
}

/// Who keeps a tailscaled running. Without one, it runs on.
#[derive(Debug)]
pub struct Supervisor {
    settings: Arc<Tailscaled>,
    process: Option<Process>,
    /// Since when we know it.
    since: Instant,
    /// When it is started again.
    due: Instant,
    backoff: Backoff,
    next_log_look: Instant,
}

impl Supervisor {
    /// Begins to look after a tailscaled, which is not touched yet.
    pub fn new(settings: Tailscaled) -> Self {
        let now = Instant::now();
        Self {
            settings: Arc::new(settings),
            process: None,
            since: now,
            due: now,
            backoff: Backoff::default(),
            next_log_look: now,
        }
    }

    /// How it is to run.
    pub fn settings(&self) -> &Tailscaled {
        &self.settings
    }

    /// Changes how it is to run from its next start on.
    pub fn set(&mut self, settings: Tailscaled) {
        self.settings = Arc::new(settings);
    }

    /// Sees to it that one runs: the one that does, or a new one. Two supervisors that do this at
    /// once end up with the same one.
    pub async fn ensure(&mut self) -> Result<Ensured, Error> {
        let settings = Arc::clone(&self.settings);
        let listener = Listener::at(&settings.socket).await;
        let (identity, ensured) = blocking(move || settings.ensure(listener)).await?;
        let hold = Process::hold(identity).map_err(Error::process("watch", identity.pid))?;
        let ended = || io::Error::other("it has ended at once: see its log");
        let process = hold.ok_or_else(|| Error::process("watch", identity.pid)(ended()))?;
        self.process = Some(process);
        self.since = Instant::now();
        Ok(ensured)
    }

    /// Keeps it running, and tells what happens to it. Nothing is lost if this is cancelled: what
    /// was started then is adopted by the next call.
    pub async fn next(&mut self) -> Event {
        loop {
            let Some(process) = &self.process else {
                sleep_until(self.due).await;
                match self.ensure().await {
                    Ok(ensured) => return Event::Running(ensured),
                    Err(error) => return self.failed(error),
                }
            };
            let pid = process.identity.pid;
            tokio::select! {
                end = process.ended() => {
                    self.process = None;
                    match end {
                        Ok(how) => {
                            let again_in = self.backoff.after(self.since.elapsed());
                            self.due = Instant::now() + again_in;
                            return Event::Ended { pid, how, again_in };
                        }
                        Err(error) => return self.failed(Error::process("watch", pid)(error)),
                    }
                }
                () = sleep_until(self.next_log_look) => {
                    self.next_log_look = Instant::now() + LOG_LOOK;
                    if let Err(error) = self.trim_log().await {
                        tracing::warn!(%error, "the log of tailscaled grows");
                    }
                }
            }
        }
    }

    /// Puts the log aside if it has grown too large. [`next`](Self::next) does so by itself.
    pub async fn trim_log(&self) -> Result<(), Error> {
        let settings = Arc::clone(&self.settings);
        blocking(move || settings.state().trim_log(settings.log_limit_bytes)).await
    }

    /// Stops the one that runs, whoever has started it, if there is one. [`next`](Self::next)
    /// would start it again.
    pub async fn stop(&mut self) -> Result<(), Error> {
        self.end(&[(Signal::TERM, TERM_WAIT), (Signal::KILL, KILL_WAIT)])
            .await
    }

    async fn end(&mut self, signals: &[(Signal, Duration)]) -> Result<(), Error> {
        let settings = Arc::clone(&self.settings);
        let found = blocking(move || {
            // One may run with another state directory. Where ours is missing, none is to be made.
            let has_dir = settings.state_dir.exists();
            let lock = has_dir.then(|| settings.state().lock()).transpose()?;
            Ok((lock, settings.find()))
        })
        .await?;
        self.process = None;
        let (lock, found) = found;
        if let Some(identity) = found {
            end(identity, signals).await?;
        }
        self.settings.state().remove_record()?;
        // Nobody starts another one before this.
        drop::<Option<File>>(lock);
        Ok(())
    }

    /// Stops it and starts it again, as it should be.
    pub async fn restart(&mut self) -> Result<Ensured, Error> {
        self.stop().await?;
        self.ensure().await
    }

    /// Kills it and starts it again, as it should be. It takes nothing of what it made away: another
    /// one in the same network uses the same rules.
    pub async fn replace(&mut self) -> Result<Ensured, Error> {
        self.end(&[(Signal::KILL, KILL_WAIT)]).await?;
        self.ensure().await
    }

    fn failed(&mut self, error: Error) -> Event {
        let again_in = self.backoff.after(Duration::ZERO);
        self.due = Instant::now() + again_in;
        Event::Failed { error, again_in }
    }
}

impl Tailscaled {
    fn state(&self) -> StateDir {
        StateDir(self.state_dir.clone())
    }

    /// Blocks.
    fn ensure(&self, listener: Option<Listener>) -> Result<(Identity, Ensured), Error> {
        let state = self.state();
        state.ensure()?;
        let _lock = state.lock()?;
        let variables = self.variables(|name| std::env::var_os(name));
        let (identity, origin) = if let Some(identity) = self.find() {
            (identity, Origin::Adopted)
        } else if let Some(Listener { pid }) = listener {
            // A second one would clean up after the first before it notices it.
            let socket = self.socket.clone();
            return Err(Error::Taken { socket, pid });
        } else {
            warned(state.trim_log(self.log_limit_bytes));
            let identity = self.spawn(&variables, warned(state.open_log()))?;
            (identity, Origin::Started)
        };
        if state.record() != Some(identity) {
            // Without it, it is found among all processes.
            warned(state.write_record(identity));
        }
        let differences = match origin {
            Origin::Adopted => self.differences(identity, &variables),
            Origin::Started => Vec::new(),
        };
        let ensured = Ensured {
            pid: identity.pid,
            origin,
            differences,
        };
        Ok((identity, ensured))
    }

    /// The process of these settings: the one that was written down, or, if somebody died before that
    /// or the state directory is another one by now, the one that is found.
    fn find(&self) -> Option<Identity> {
        let written = self.state().record();
        let lives = |identity: &Identity| Identity::of(identity.pid) == Some(*identity);
        if let Some(identity) = written.filter(lives)
            && self.owns(identity)
        {
            return Some(identity);
        }
        let all = process::all().unwrap_or_default();
        all.into_iter().find(|identity| self.owns(*identity))
    }
}

/// A disk that is full must not keep a node out of the mesh.
fn warned<T>(outcome: Result<T, Error>) -> Option<T> {
    let warn = |error: &Error| {
        let source = std::error::Error::source(error).map(ToString::to_string);
        tracing::warn!(%error, source, "tailscaled runs all the same");
    };
    outcome.inspect_err(warn).ok()
}

/// Ends a process by these signals, each of which is given some time.
async fn end(identity: Identity, signals: &[(Signal, Duration)]) -> Result<(), Error> {
    let pid = identity.pid;
    let Some(process) = Process::hold(identity).map_err(Error::process("stop", pid))? else {
        return Ok(());
    };
    for (signal, wait) in signals {
        process
            .signal(*signal)
            .map_err(Error::process("stop", pid))?;
        let ended = process.ended_within(*wait).await;
        if ended.map_err(Error::process("wait for", pid))? {
            return Ok(());
        }
    }
    Err(Error::Immortal {
        pid,
        waited: KILL_WAIT,
    })
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime ends, and this with it.
            Err(_) => std::future::pending().await,
        },
    }
}
