//! From start to end: what begins in which order, what signals do, and that nothing goes on alone.
//!
//! The admin server comes first, so that somebody can always ask. Then everything runs beside
//! everything else, each part waiting for what it needs. A part that ends, or panics, ends the
//! process: whoever started it starts it again, and pods don't notice.

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
use crate::instance::{Instance, InstanceError};
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

/// How long parts may take to end.
const GOODBYE: Duration = Duration::from_secs(3);
/// How long systemd waits for the first passes, whatever comes of them.
const FIRST_PASSES: Duration = Duration::from_secs(10);
/// Calls that block at the same time. All that there are take milliseconds, but for the disk.
const BLOCKING_THREADS: usize = 8;

/// Runs until a signal ends it. Errors are returned until there is a log, and then logged.
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
    let instance = Instance::take(Path::new(paths::DAEMON_LOCK))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .build()
        .context("start the runtime")?;
    let outcome = runtime.block_on(Daemon::new(options, loaded, node, log, instance).live());
    // What blocks for longer is the kernel's or the disk's business, and is done again at the next
    // start.
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

/// The daemon while it runs.
struct Daemon<'a> {
    options: &'a Options,
    log: &'a LogHandle,
    instance: Instance,
    heartbeat: Arc<Heartbeat>,
    tasks: Tasks,
}

impl<'a> Daemon<'a> {
    fn new(
        options: &'a Options,
        loaded: Loaded,
        node: NodeName,
        log: &'a LogHandle,
        instance: Instance,
    ) -> Self {
        let telemetry = Telemetry {
            conditions: Arc::new(Conditions::default()),
            metrics: Arc::new(Metrics::new()),
        };
        tracing::info!(version = env!("CARGO_PKG_VERSION"), %node, "headcni-daemon begins");
        tell_of_loading(&loaded, &telemetry.conditions);
        Self {
            options,
            log,
            instance,
            heartbeat: Arc::new(Heartbeat::default()),
            tasks: Tasks::new(Channels::at_start(loaded.config, node), telemetry),
        }
    }

    async fn live(mut self) -> Result<()> {
        let mut signals = Signals::new()?;
        self.tasks.serve_admin(&self.heartbeat).await?;
        let paths = pod_paths(&self.tasks.channels.node_config.borrow())?;
        let pods = Pods::new(paths, self.tasks.telemetry.clone());
        // A disk that hangs holds the start up, but not the end.
        let begun = tokio::select! {
            begun = self.tasks.begin(&pods) => begun.map(|()| true),
            () = signals.ends.recv() => Ok(false),
        };
        let outcome = match begun {
            Ok(true) => self.turn(&mut signals, &pods).await,
            Ok(false) => Ok(()),
            Err(error) => Err(error),
        };
        systemd::stopping();
        tracing::info!("headcni-daemon ends; pods keep their network");
        if !self.tasks.end(GOODBYE).await {
            tracing::warn!("some tasks did not end in time");
        }
        // What a pass still waits for would outlive us.
        program::kill_all();
        outcome
    }

    /// Turns until a signal ends it, or a part ends by itself.
    async fn turn(&mut self, signals: &mut Signals, pods: &Arc<Pods>) -> Result<()> {
        let mut beat = tokio::time::interval(systemd::beat());
        let began = Instant::now();
        let mut is_told = false;
        loop {
            tokio::select! {
                _ = beat.tick() => {
                    self.heartbeat.beat();
                    self.count_dropped_lines();
                    if is_told {
                        systemd::turning();
                    }
                    self.keep_instance()?;
                }
                () = tokio::time::sleep(Duration::from_millis(100)), if !is_told => {
                    let is_late = began.elapsed() > FIRST_PASSES;
                    if self.tasks.telemetry.conditions.is_ready() || is_late {
                        is_told = true;
                        self.tell_ready();
                    }
                }
                () = signals.ends.recv() => return Ok(()),
                _ = signals.reload.recv() => {
                    systemd::reloading();
                    tokio::select! {
                        () = self.reload(pods) => {}
                        () = signals.ends.recv() => return Ok(()),
                    }
                    self.tell_ready();
                }
                error = self.tasks.ended() => return Err(error),
            }
        }
    }

    /// Somebody may have taken the lock's file away, and another daemon may have begun since.
    fn keep_instance(&mut self) -> Result<()> {
        match self.instance.keep() {
            Err(error @ InstanceError::Running { .. }) => Err(error.into()),
            // Tried again with the next beat; the socket's condition says what is wrong there.
            Err(InstanceError::Io { .. }) | Ok(()) => Ok(()),
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

    fn tell_ready(&self) {
        systemd::ready(if self.tasks.telemetry.conditions.is_ready() {
            "ready"
        } else {
            "not ready: see /ready"
        });
    }

    /// Reads the configuration again. One that can't be used changes nothing.
    async fn reload(&mut self, pods: &Arc<Pods>) {
        let sources = self.options.sources();
        let loaded = match tokio::task::spawn_blocking(move || node_config::load(&sources)).await {
            Ok(Ok(loaded)) => loaded,
            Ok(Err(error)) => {
                self.tasks.telemetry.conditions.fails(
                    Condition::ConfigurationLoaded,
                    format_args!("the configuration that was loaded before is in force: {error}"),
                );
                return;
            }
            Err(_) => return,
        };
        let before = Arc::clone(&self.tasks.channels.node_config.borrow().config);
        if let Err(refusal) = self.check_leases(&loaded.config, pods).await {
            self.tasks.telemetry.conditions.fails(
                Condition::ConfigurationLoaded,
                format_args!("the configuration that was loaded before is in force: {refusal}"),
            );
            return;
        }
        tell_of_loading(&loaded, &self.tasks.telemetry.conditions);
        if loaded.config == *before {
            tracing::info!("the configuration was loaded and is the same");
            // Files that it names may have changed: everybody looks again.
            self.tasks.channels.config.send_modify(|_| ());
            self.tasks.channels.node_config.send_modify(|_| ());
            return;
        }
        tracing::info!("the configuration was loaded and has changed");
        for key in node_config::needs_restart(&before, &loaded.config) {
            tracing::warn!(key, "this takes effect when the daemon is restarted");
        }
        self.log.reload(loaded.config.logging);
        let config = Arc::new(loaded.config);
        let mut node_config = self.tasks.channels.node_config.subscribe();
        self.tasks.channels.config.send_replace(Arc::clone(&config));
        // The controllers see it together with the pod CIDRs that are discovered by it.
        let is_taken = |current: &NodeConfig| Arc::ptr_eq(&current.config, &config);
        if node_config.wait_for(is_taken).await.is_err() {
            return;
        }
        match pod_paths(&self.tasks.channels.node_config.borrow()) {
            Ok(paths) => pods.set_paths(paths),
            Err(error) => tracing::error!(%error, "failed to apply the new pod paths"),
        }
    }

    /// Whether leases may be where another configuration puts them.
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

fn tell_of_loading(loaded: &Loaded, conditions: &Conditions) {
    for warning in &loaded.warnings {
        tracing::warn!(%warning, "the configuration is allowed, but likely not meant");
    }
    let message = match &loaded.file {
        Some(file) => file.display().to_string(),
        None => format!("there is no {}: defaults", paths::DAEMON_CONFIG),
    };
    conditions.holds(Condition::ConfigurationLoaded, message);
}

fn pod_paths(node_config: &NodeConfig) -> Result<node_pods::PodPaths> {
    let dirs = node_config.dirs();
    Ok(node_pods::PodPaths::of(&node_config.config, &dirs.bin_dir)?)
}

struct Signals {
    ends: Ends,
    reload: Signal,
}

/// Signals that tell us to end.
struct Ends {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> Result<Self> {
        let on = |kind| signal(kind).context("listen for signals");
        Ok(Self {
            ends: Ends {
                terminate: on(SignalKind::terminate())?,
                interrupt: on(SignalKind::interrupt())?,
            },
            reload: on(SignalKind::hangup())?,
        })
    }
}

impl Ends {
    /// Waits for one of them.
    async fn recv(&mut self) {
        let signal = tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        };
        tracing::info!("told to end by {signal}");
    }
}
