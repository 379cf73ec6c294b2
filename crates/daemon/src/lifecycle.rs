//! Start, signals, reload and shutdown.
//!
//! The admin server starts first, so that probes get an answer. All other tasks start together and wait
//! for their inputs. A task that ends or panics ends the process, and its supervisor restarts it; pods
//! keep their network.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use api::paths;
use net::program;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::admin::Heartbeat;
use crate::cli::Options;
use crate::instance_lock::{InstanceLock, InstanceLockError};
use crate::logging::LogHandle;
use crate::tasks::{Channels, Tasks};
use crate::{logging, systemd};
use node_config::{Config, Loaded, NodeConfig};
use node_core::conditions::{Condition, Conditions};
use node_core::error::display_chain;
use node_core::metrics::Metrics;
use node_core::node_name::{self, NodeName};
use node_core::reconcile::Telemetry;
use node_pods::Pods;
use node_pods::leases::{LeaseStoreLocation, LeaseStoreLocations};

const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);
/// After this, systemd is notified even if the node is not ready.
const READY_TIMEOUT: Duration = Duration::from_secs(10);
/// Blocking calls take milliseconds unless the disk hangs.
const BLOCKING_THREADS: usize = 8;

/// Runs until SIGTERM or SIGINT. Returns errors until the log is set up; logs them from then on.
pub fn run(options: &Options) -> Result<ExitCode> {
    let loaded = node_config::load(&options.sources())?;
    let name = std::env::var_os(node_name::VARIABLE);
    let node = node_name::find(options.node_name.as_deref(), name.as_deref())?;
    let log = logging::init(loaded.config.logging)?;
    match run_logged(options, loaded, node, &log) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            logging::fatal(format_args!("{error:#}"));
            Ok(ExitCode::FAILURE)
        }
    }
}

fn run_logged(options: &Options, loaded: Loaded, node: NodeName, log: &LogHandle) -> Result<()> {
    let lock = InstanceLock::acquire(Path::new(paths::DAEMON_LOCK))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .build()
        .context("start the runtime")?;
    let outcome = runtime.block_on(Daemon::new(options, loaded, node, log, lock).run());
    // The next start repeats what still blocks.
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

struct Daemon<'a> {
    options: &'a Options,
    log: &'a LogHandle,
    lock: InstanceLock,
    heartbeat: Arc<Heartbeat>,
    tasks: Tasks,
}

impl<'a> Daemon<'a> {
    fn new(
        options: &'a Options,
        loaded: Loaded,
        node: NodeName,
        log: &'a LogHandle,
        lock: InstanceLock,
    ) -> Self {
        let telemetry = Telemetry {
            conditions: Arc::new(Conditions::default()),
            metrics: Arc::new(Metrics::new()),
        };
        tracing::info!(version = env!("CARGO_PKG_VERSION"), %node, "headcni-daemon started");
        report_loaded(&loaded, &telemetry.conditions);
        Self {
            options,
            log,
            lock,
            heartbeat: Arc::new(Heartbeat::default()),
            tasks: Tasks::new(Channels::load(loaded.config, node), telemetry),
        }
    }

    async fn run(mut self) -> Result<()> {
        let mut signals = Signals::new()?;
        self.tasks.serve_admin(&self.heartbeat).await?;
        let paths = pod_paths(&self.tasks.channels.node_config.borrow())?;
        let pods = Pods::new(paths, self.tasks.telemetry.clone());
        // A hanging disk delays the start, but not a shutdown.
        let started = tokio::select! {
            started = self.tasks.start(&pods) => started.map(|()| true),
            () = signals.shutdown.recv() => Ok(false),
        };
        let outcome = match started {
            Ok(true) => self.run_loop(&mut signals, &pods).await,
            Ok(false) => Ok(()),
            Err(error) => Err(error),
        };
        systemd::stopping();
        tracing::info!("headcni-daemon stopping; pods keep their network");
        if !self.tasks.stop(SHUTDOWN_TIMEOUT).await {
            tracing::warn!("tasks did not stop in time");
        }
        // A blocking reconcile may still wait for a child process.
        program::kill_all();
        outcome
    }

    /// Returns after a shutdown signal, or when a task ends.
    async fn run_loop(&mut self, signals: &mut Signals, pods: &Arc<Pods>) -> Result<()> {
        let mut heartbeat = tokio::time::interval(systemd::heartbeat_interval());
        let started = Instant::now();
        let mut is_ready_sent = false;
        loop {
            tokio::select! {
                _ = heartbeat.tick() => {
                    self.heartbeat.beat();
                    self.count_dropped_lines();
                    if is_ready_sent {
                        systemd::watchdog();
                    }
                    self.renew_lock()?;
                }
                () = tokio::time::sleep(Duration::from_millis(100)), if !is_ready_sent => {
                    let is_late = started.elapsed() > READY_TIMEOUT;
                    if self.tasks.telemetry.conditions.is_ready() || is_late {
                        is_ready_sent = true;
                        self.notify_ready();
                    }
                }
                () = signals.shutdown.recv() => return Ok(()),
                _ = signals.reload.recv() => {
                    systemd::reloading();
                    tokio::select! {
                        () = self.reload(pods) => {}
                        () = signals.shutdown.recv() => return Ok(()),
                    }
                    self.notify_ready();
                }
                error = self.tasks.ended() => return Err(error),
            }
        }
    }

    /// The lock file may have been deleted, and another daemon started since.
    fn renew_lock(&mut self) -> Result<()> {
        match self.lock.renew() {
            Err(error @ InstanceLockError::Running { .. }) => Err(error.into()),
            // The next heartbeat retries; SocketOpen reports the cause.
            Err(InstanceLockError::Io { .. }) | Ok(()) => Ok(()),
        }
    }

    fn count_dropped_lines(&self) {
        let counter = &self.tasks.telemetry.metrics.log_lines_dropped;
        let new = self.log.dropped_lines().saturating_sub(counter.get());
        if new > 0 {
            counter.inc_by(new);
            tracing::warn!(lines = new, "log lines dropped: stderr is too slow");
        }
    }

    fn notify_ready(&self) {
        systemd::ready(if self.tasks.telemetry.conditions.is_ready() {
            "ready"
        } else {
            "not ready: see /ready"
        });
    }

    /// Loads the configuration again. An invalid one changes nothing.
    async fn reload(&mut self, pods: &Arc<Pods>) {
        let sources = self.options.sources();
        let loaded = match tokio::task::spawn_blocking(move || node_config::load(&sources)).await {
            Ok(Ok(loaded)) => loaded,
            Ok(Err(error)) => {
                self.tasks.telemetry.conditions.fails(
                    Condition::ConfigurationLoaded,
                    format_args!("the previous configuration stays in force: {error}"),
                );
                return;
            }
            Err(_) => return,
        };
        let before = Arc::clone(&self.tasks.channels.node_config.borrow().config);
        if let Err(refusal) = self.check_leases(&loaded.config, pods).await {
            self.tasks.telemetry.conditions.fails(
                Condition::ConfigurationLoaded,
                format_args!("the previous configuration stays in force: {refusal}"),
            );
            return;
        }
        report_loaded(&loaded, &self.tasks.telemetry.conditions);
        if loaded.config == *before {
            tracing::info!("configuration reloaded without changes");
            // Files that it names may have changed.
            self.tasks.channels.config.send_modify(|_| ());
            self.tasks.channels.node_config.send_modify(|_| ());
            return;
        }
        tracing::info!("configuration reloaded with changes");
        for key in node_config::needs_restart(&before, &loaded.config) {
            tracing::warn!(key, "configuration key takes effect after a restart");
        }
        self.log.reload(loaded.config.logging);
        let config = Arc::new(loaded.config);
        let mut node_config = self.tasks.channels.node_config.subscribe();
        self.tasks.channels.config.send_replace(Arc::clone(&config));
        // podcidr publishes it together with the pod CIDRs that it implies.
        let is_current = |current: &NodeConfig| Arc::ptr_eq(&current.config, &config);
        if node_config.wait_for(is_current).await.is_err() {
            return;
        }
        match pod_paths(&self.tasks.channels.node_config.borrow()) {
            Ok(paths) => pods.set_paths(paths),
            Err(error) => tracing::error!(%error, "failed to apply the new pod paths"),
        }
    }

    /// Refuses to move the lease store while pods have leases in it.
    async fn check_leases(&self, config: &Config, pods: &Arc<Pods>) -> Result<(), String> {
        let (location, dirs) = (
            LeaseStoreLocation::of(config),
            self.tasks.channels.node_config.borrow().dirs(),
        );
        let pods = Arc::clone(pods);
        let check = move || {
            LeaseStoreLocations::load(&dirs).check(&location, |location| pods.lease_users(location))
        };
        match tokio::task::spawn_blocking(check).await {
            Ok(checked) => checked.map_err(|error| display_chain(&error)),
            // A panic ends the process.
            Err(error) => Err(error.to_string()),
        }
    }
}

fn report_loaded(loaded: &Loaded, conditions: &Conditions) {
    for warning in &loaded.warnings {
        tracing::warn!(%warning, "configuration warning");
    }
    let message = match &loaded.file {
        Some(file) => file.display().to_string(),
        None => format!("defaults, because {} does not exist", paths::DAEMON_CONFIG),
    };
    conditions.holds(Condition::ConfigurationLoaded, message);
}

fn pod_paths(node_config: &NodeConfig) -> Result<node_pods::PodPaths> {
    let dirs = node_config.dirs();
    Ok(node_pods::PodPaths::of(&node_config.config, &dirs.bin_dir)?)
}

struct Signals {
    shutdown: ShutdownSignals,
    reload: Signal,
}

struct ShutdownSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> Result<Self> {
        let on = |kind| signal(kind).context("listen for signals");
        Ok(Self {
            shutdown: ShutdownSignals {
                terminate: on(SignalKind::terminate())?,
                interrupt: on(SignalKind::interrupt())?,
            },
            reload: on(SignalKind::hangup())?,
        })
    }
}

impl ShutdownSignals {
    async fn recv(&mut self) {
        let signal = tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        };
        tracing::info!(signal, "shutdown requested");
    }
}
