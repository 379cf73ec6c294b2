//! From start to end: what begins in which order, what signals do, and that nothing goes on alone.
//!
//! The admin server comes first, so that somebody can always ask. Then everything runs beside
//! everything else, each part waiting for what it needs. A part that ends, or panics, ends the
//! process: whoever started it starts it again, and pods don't notice.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use api::paths;
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admin::{Heartbeat, Limits, Server, Sources};
use crate::answers::Knowledge;
use crate::cli::Options;
use crate::conditions::{Condition, Conditions};
use crate::config::{self, Config, Loaded, Monitoring};
use crate::instance::{Instance, InstanceError};
use crate::keeper::{Outcome, Part, Reports, keep};
use crate::metrics::Metrics;
use crate::network::{self, Desired, Wanted};
use crate::node_name::{self, NodeName};
use crate::pods::{self, Pods};
use crate::settings::Settings;
use crate::socket::{self, Ends, News, Question};
use crate::{cniconf, discovery, logging};

/// How often everything is looked at though nothing happened.
const FULL_PASS: Duration = Duration::from_mins(1);
/// How often the loop shows that it turns.
const BEAT: Duration = Duration::from_secs(5);
/// No watchdog makes it show that more often.
const QUICKEST_BEAT: Duration = Duration::from_millis(100);
/// How long parts may take to end.
const GOODBYE: Duration = Duration::from_secs(3);
/// How soon an address that is in use is tried again.
const ADMIN_RETRY: Duration = Duration::from_secs(2);
/// How long systemd waits for the first passes, whatever comes of them.
const FIRST_PASSES: Duration = Duration::from_secs(10);
/// Events that wait to be counted.
const EVENT_QUEUE: usize = 256;
/// Questions that wait to be answered.
const QUESTION_QUEUE: usize = 64;
/// Calls that block at the same time. All that there are take milliseconds, but for the disk.
const BLOCKING_THREADS: usize = 8;

/// Runs until a signal ends it. Errors are returned until there is a log, and then logged.
pub fn run(options: &Options) -> Result<ExitCode> {
    let loaded = config::load(&options.sources())?;
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

fn run_logged(
    options: &Options,
    loaded: Loaded,
    node: NodeName,
    log: &logging::Handle,
) -> Result<()> {
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

/// What all parts share.
struct Daemon<'a> {
    options: &'a Options,
    log: &'a logging::Handle,
    instance: Instance,
    settings: watch::Sender<Settings>,
    reports: Reports,
    heartbeat: Arc<Heartbeat>,
    end: CancellationToken,
    parts: JoinSet<&'static str>,
}

impl<'a> Daemon<'a> {
    fn new(
        options: &'a Options,
        loaded: Loaded,
        node: NodeName,
        log: &'a logging::Handle,
        instance: Instance,
    ) -> Self {
        let reports = Reports {
            conditions: Arc::new(Conditions::default()),
            metrics: Arc::new(Metrics::new()),
        };
        tracing::info!(version = env!("CARGO_PKG_VERSION"), %node, "headcni-daemon begins");
        tell_of_loading(&loaded, &reports.conditions);
        Self {
            options,
            log,
            instance,
            settings: watch::Sender::new(Settings::new(loaded.config, node)),
            reports,
            heartbeat: Arc::new(Heartbeat::default()),
            end: CancellationToken::new(),
            parts: JoinSet::new(),
        }
    }

    async fn live(mut self) -> Result<()> {
        let mut signals = Signals::new()?;
        self.serve_admin().await?;
        let place = pods_place(&self.settings.borrow())?;
        let pods = Pods::new(place, self.reports.clone());
        self.begin(&pods).await?;
        let outcome = self.turn(&mut signals, &pods).await;
        let _ = sd_notify::notify(&[NotifyState::Stopping]);
        tracing::info!("headcni-daemon ends; pods keep their network");
        self.end.cancel();
        let all = async { while self.parts.join_next().await.is_some() {} };
        if tokio::time::timeout(GOODBYE, all).await.is_err() {
            tracing::warn!("some parts did not end in time");
        }
        outcome
    }

    /// Starts what answers on `/healthz`. An address that is not free yet is waited for beside
    /// everything else: pods don't need it.
    async fn serve_admin(&mut self) -> Result<()> {
        let sources = Sources {
            heartbeat: Arc::clone(&self.heartbeat),
            conditions: Arc::clone(&self.reports.conditions),
            metrics: Arc::clone(&self.reports.metrics),
        };
        let monitoring = self.settings.borrow().config.monitoring.clone();
        let end = self.end.clone();
        let server =
            match Server::start(&monitoring, sources.clone(), Limits::default(), &end).await {
                Ok(server) => Some(server),
                Err(error) if error.may_pass() => {
                    tracing::error!(%error, "trying again");
                    None
                }
                Err(error) => return Err(error.into()),
            };
        let settings = self.settings.subscribe();
        self.spawn(
            "admin",
            keep_admin(server, monitoring, sources, settings, end),
        );
        Ok(())
    }

    /// Starts all parts.
    async fn begin(&mut self, pods: &Arc<Pods>) -> Result<()> {
        let dirs = self.settings.borrow().dirs();
        let known = Arc::clone(pods);
        tokio::task::spawn_blocking(move || {
            match cniconf::restore_after_boot(&dirs) {
                Ok(cniconf::Restored::Nothing) => {}
                Ok(cniconf::Restored::Subnets(_)) => {
                    tracing::info!("subnet.env is back as it was before the reboot");
                }
                // What is wrong with the files is found by the first pass, and told by its
                // condition.
                Err(error) => tracing::warn!(error = error.explained(), "restore subnet.env"),
            }
            // Before the network is looked at: what pods have is not to be taken for a left-over.
            for trouble in known.resync() {
                tracing::warn!(%trouble, "pods can't be looked at");
            }
        })
        .await
        .context("look at the node")?;

        // So that no part has to begin with nothing to go by.
        discovery::begin(&self.settings, &self.reports.conditions).await;
        let conditions = Arc::clone(&self.reports.conditions);
        let discovering = discovery::keep(self.settings.clone(), conditions, self.end.clone());
        self.spawn("discovery", discovering);
        self.keep_cni_files(pods);
        self.keep_network(pods);
        self.keep_pods(pods);
        self.listen(pods);
        Ok(())
    }

    fn keep_cni_files(&mut self, pods: &Arc<Pods>) {
        let known = Arc::clone(pods);
        let changed = Arc::new(Notify::new());
        let part = Part {
            name: "cniconf",
            condition: Condition::CniConfigWritten,
            changed: Arc::clone(&changed),
            every: FULL_PASS,
        };
        let passes = keep(
            part,
            self.reports.clone(),
            self.settings.subscribe(),
            self.end.clone(),
            move |settings| {
                let outcome = write_cni_files(&settings)?;
                if !outcome.repairs.is_empty() {
                    // How many addresses there are stands in these files.
                    known.missed();
                }
                Ok(outcome)
            },
        );
        self.spawn("cniconf", passes);
        let mut settings = self.settings.subscribe();
        let end = self.end.clone();
        self.spawn("cniconf watch", async move {
            loop {
                let dirs = settings.borrow_and_update().dirs();
                let _watch = match cniconf::watch(&dirs, Arc::clone(&changed)) {
                    Ok(watch) => Some(watch),
                    Err(error) => {
                        tracing::warn!(%error, "the CNI files are not watched; passes find changes");
                        None
                    }
                };
                tokio::select! {
                    () = end.cancelled() => return,
                    changed = settings.changed() => if changed.is_err() { return },
                }
            }
        });
    }

    fn keep_network(&mut self, pods: &Arc<Pods>) {
        let signals = network::Signals::default();
        let part = Part {
            name: "network",
            condition: Condition::NetworkReady,
            changed: Arc::clone(&signals.network),
            every: FULL_PASS,
        };
        let known = Arc::clone(pods);
        let passes = keep(
            part,
            self.reports.clone(),
            self.settings.subscribe(),
            self.end.clone(),
            move |settings| keep_network_up(&settings, &known),
        );
        self.spawn("network", passes);
        let part = Part {
            name: "firewall",
            condition: Condition::ForwardingAllowed,
            changed: Arc::clone(&signals.firewall),
            every: FULL_PASS,
        };
        let passes = keep(
            part,
            self.reports.clone(),
            self.settings.subscribe(),
            self.end.clone(),
            |settings: Settings| look_at_firewalls(&settings),
        );
        self.spawn("firewall", passes);
        let watching = network::watch(signals, self.end.clone());
        self.spawn("network watch", watching);
    }

    fn keep_pods(&mut self, pods: &Arc<Pods>) {
        let viewing = Arc::clone(pods).keep_view(self.end.clone());
        self.spawn("pods", viewing);
        let part = Part {
            name: "orphans",
            condition: Condition::OrphansCollected,
            changed: Arc::new(Notify::new()),
            every: self.settings.borrow().config.pods.orphan_interval.0,
        };
        let collecting = Arc::clone(pods);
        let passes = keep(
            part,
            self.reports.clone(),
            self.settings.subscribe(),
            self.end.clone(),
            move |settings: Settings| {
                let pods = &settings.config.pods;
                collecting.collect(pods::Limits {
                    grace: pods.orphan_grace.0,
                    interval: pods.orphan_interval.0,
                })
            },
        );
        self.spawn("orphans", passes);
    }

    /// Listens to the plugin, and to people who ask.
    fn listen(&mut self, pods: &Arc<Pods>) {
        let (news, incoming) = mpsc::channel(EVENT_QUEUE);
        let (questions, asked) = mpsc::channel(QUESTION_QUEUE);
        let ends = Ends {
            news,
            questions,
            metrics: Arc::clone(&self.reports.metrics),
            conditions: Arc::clone(&self.reports.conditions),
        };
        let serving = socket::serve(socket::Settings::default(), ends, self.end.clone());
        self.spawn("socket", serving);
        let listening = take_news(
            incoming,
            Arc::clone(pods),
            Arc::clone(&self.reports.metrics),
            self.settings.subscribe(),
            self.end.clone(),
        );
        self.spawn("events", listening);
        let knowledge = Knowledge {
            began: Instant::now(),
            settings: self.settings.subscribe(),
            conditions: Arc::clone(&self.reports.conditions),
            pods: Arc::clone(pods),
        };
        self.spawn("questions", answer_all(asked, knowledge, self.end.clone()));
    }

    /// Starts a part; it must not end before the daemon does.
    fn spawn(
        &mut self,
        name: &'static str,
        work: impl std::future::Future<Output = ()> + Send + 'static,
    ) {
        self.parts.spawn(async move {
            work.await;
            name
        });
    }

    /// Turns until a signal ends it, or a part ends by itself.
    async fn turn(&mut self, signals: &mut Signals, pods: &Pods) -> Result<()> {
        let mut beat = tokio::time::interval(beat());
        let began = Instant::now();
        let mut is_told = false;
        loop {
            tokio::select! {
                _ = beat.tick() => {
                    self.heartbeat.beat();
                    if is_told {
                        let _ = sd_notify::notify(&[NotifyState::Watchdog]);
                    }
                    self.keep_instance()?;
                }
                () = tokio::time::sleep(Duration::from_millis(100)), if !is_told => {
                    let is_late = began.elapsed() > FIRST_PASSES;
                    if self.reports.conditions.is_ready() || is_late {
                        is_told = true;
                        self.tell_systemd(&[NotifyState::Ready]);
                    }
                }
                _ = signals.terminate.recv() => {
                    tracing::info!("told to end by SIGTERM");
                    return Ok(());
                }
                _ = signals.interrupt.recv() => {
                    tracing::info!("told to end by SIGINT");
                    return Ok(());
                }
                _ = signals.reload.recv() => {
                    tell_of_reloading();
                    self.reload(pods).await;
                    self.tell_systemd(&[NotifyState::Ready]);
                }
                Some(ended) = self.parts.join_next() => match ended {
                    Ok(name) => bail!("the part {name} has ended by itself: this is a bug"),
                    Err(error) => bail!("a part has panicked: this is a bug: {error}"),
                }
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

    fn tell_systemd(&self, states: &[NotifyState<'_>]) {
        let text = if self.reports.conditions.is_ready() {
            "ready"
        } else {
            "not ready: see /ready"
        };
        let _ = sd_notify::notify(&[states, &[NotifyState::Status(text)]].concat());
    }

    /// Reads the configuration again. One that can't be used changes nothing.
    async fn reload(&mut self, pods: &Pods) {
        let sources = self.options.sources();
        let loaded = match tokio::task::spawn_blocking(move || config::load(&sources)).await {
            Ok(Ok(loaded)) => loaded,
            Ok(Err(error)) => {
                self.reports.conditions.fails(
                    Condition::ConfigurationLoaded,
                    format_args!("the configuration that was loaded before is in force: {error}"),
                );
                return;
            }
            Err(_) => return,
        };
        let before = Arc::clone(&self.settings.borrow().config);
        let is_attached = |pod: &pods::Snapshot| pod.state == pods::State::Attached;
        if moves_leases(&before, &loaded.config) && pods.snapshot().iter().any(is_attached) {
            self.reports.conditions.fails(
                Condition::ConfigurationLoaded,
                "the configuration that was loaded before is in force: cni.name, ipam.type and \
                 ipam.dataDir say where leases are, and pods that run have some: new pods would get \
                 their addresses a second time; drain the node first",
            );
            return;
        }
        tell_of_loading(&loaded, &self.reports.conditions);
        if loaded.config == *before {
            tracing::info!("the configuration was loaded and is the same");
            return;
        }
        tracing::info!("the configuration was loaded and has changed");
        for key in config::needs_restart(&before, &loaded.config) {
            tracing::warn!(key, "this takes effect when the daemon is restarted");
        }
        self.log.reload(loaded.config.logging);
        let mut next = self.settings.borrow().clone();
        next.config = Arc::new(loaded.config);
        let config = Arc::clone(&next.config);
        let looked = tokio::task::spawn_blocking(move || discovery::look(&next)).await;
        // A panic ends the process, and whoever keeps on looking meets it again.
        let Ok(found) = looked else { return };
        discovery::replace(&self.settings, &self.reports.conditions, config, found);
        match pods_place(&self.settings.borrow()) {
            Ok(place) => pods.move_to(place),
            Err(error) => tracing::error!(%error, "pods are looked for where they were"),
        }
    }
}

/// Whether leases are somewhere else by another configuration.
fn moves_leases(before: &Config, now: &Config) -> bool {
    let place = |config: &Config| {
        let (cni, ipam) = (config.cni.clone(), config.ipam.clone());
        (cni.name, ipam.kind, ipam.data_dir)
    };
    place(before) != place(now)
}

/// How often the loop shows that it turns: twice as often as systemd's watchdog asks for.
fn beat() -> Duration {
    match sd_notify::watchdog_enabled() {
        Some(limit) => BEAT.min(limit / 2).max(QUICKEST_BEAT),
        None => BEAT,
    }
}

/// Units of `Type=notify-reload` want to know when it began, in the same message:
/// <https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html>.
fn tell_of_reloading() {
    let states = [NotifyState::Reloading].into_iter();
    let states: Vec<_> = states
        .chain(NotifyState::monotonic_usec_now().ok())
        .collect();
    let _ = sd_notify::notify(&states);
}

/// Serves as soon as the address is free, and takes over what SIGHUP changes.
async fn keep_admin(
    mut server: Option<Server>,
    monitoring: Monitoring,
    sources: Sources,
    mut settings: watch::Receiver<Settings>,
    end: CancellationToken,
) {
    while server.is_none() {
        tokio::select! {
            () = end.cancelled() => return,
            () = tokio::time::sleep(ADMIN_RETRY) => {}
        }
        let started = Server::start(&monitoring, sources.clone(), Limits::default(), &end);
        server = started.await.ok();
    }
    let Some(server) = server else { return };
    loop {
        server.reload(&settings.borrow_and_update().config.monitoring);
        tokio::select! {
            () = end.cancelled() => break,
            changed = settings.changed() => if changed.is_err() { break },
        }
    }
    server.shutdown().await;
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

fn pods_place(settings: &Settings) -> Result<pods::Place> {
    let dirs = settings.dirs();
    Ok(pods::Place::of(&settings.config, &dirs.bin_dir)?)
}

/// What is said as long as the node's networks are not known.
const WAITING: &str = "waiting for the node's networks: see PodCIDRKnown";

fn write_cni_files(settings: &Settings) -> Result<Outcome, String> {
    let networks = settings.networks.as_ref().ok_or(WAITING)?;
    let dirs = settings.dirs();
    let explained = |error: cniconf::CniConfError| error.explained();
    let desired = cniconf::desired(&settings.config, &networks.local, &networks.base, &dirs)
        .map_err(explained)?;
    cniconf::ensure(&desired).map(Into::into).map_err(explained)
}

fn keep_network_up(settings: &Settings, pods: &Pods) -> Result<Outcome, String> {
    let networks = settings.networks.as_ref().ok_or(WAITING)?;
    let desired = Desired::new(&settings.config, &networks.local, &networks.base, &[])
        .map_err(|error| network::words(&error))?;
    let links = pods.pod_links().into_iter();
    let wanted = Wanted {
        desired,
        pods: Some(network::Pods {
            links: links
                .map(|link| network::PodLink {
                    name: link.host_link,
                    pod_mac: link.pod_mac,
                    addresses: link.addresses,
                })
                .collect(),
            ports: pods.host_ports(),
        }),
    };
    network::pass(&network::Place::default(), &wanted).map_err(|error| network::words(&error))
}

fn look_at_firewalls(settings: &Settings) -> Result<Outcome, String> {
    let networks = settings.networks.as_ref().ok_or(WAITING)?;
    let wanted = network::firewall::Settings {
        networks: networks.local.clone(),
        integrate: settings.config.firewall.integrate,
    };
    network::firewall::pass(&network::Place::default(), &wanted).map_err(|error| chain(&error))
}

/// An error with all that led to it.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

async fn take_news(
    mut news: mpsc::Receiver<News>,
    pods: Arc<Pods>,
    metrics: Arc<Metrics>,
    settings: watch::Receiver<Settings>,
    end: CancellationToken,
) {
    while let Some(Some(news)) = end.run_until_cancelled(news.recv()).await {
        match news {
            News::Event(event) => {
                let has_labels = settings.borrow().config.monitoring.pod_labels;
                socket::count(&metrics, &event, has_labels);
                pods.told(*event).await;
            }
            News::Missed => pods.missed(),
        }
    }
}

async fn answer_all(
    mut asked: mpsc::Receiver<Question>,
    knowledge: Knowledge,
    end: CancellationToken,
) {
    while let Some(Some(question)) = end.run_until_cancelled(asked.recv()).await {
        let knowledge = knowledge.clone();
        let answer = tokio::task::spawn_blocking(move || knowledge.answer(question.ask)).await;
        // Whoever asked may be gone.
        let _ = question
            .reply
            .send(answer.unwrap_or_else(|error| Err(error.to_string())));
    }
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    reload: Signal,
}

impl Signals {
    fn new() -> Result<Self> {
        let on = |kind| signal(kind).context("listen for signals");
        Ok(Self {
            terminate: on(SignalKind::terminate())?,
            interrupt: on(SignalKind::interrupt())?,
            reload: on(SignalKind::hangup())?,
        })
    }
}
