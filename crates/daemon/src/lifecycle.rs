//! From start to end: what begins in which order, what signals do, and that nothing goes on alone.
//!
//! The admin server comes first, so that somebody can always ask. Then everything runs beside
//! everything else, each part waiting for what it needs. A part that ends, or panics, ends the
//! process: whoever started it starts it again, and pods don't notice.

use std::path::Path;
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
use crate::config::{self, Config, Loaded};
use crate::instance::Instance;
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

/// Runs until a signal ends it.
pub fn run(options: &Options) -> Result<()> {
    let loaded = config::load(&options.sources())?;
    let name = std::env::var_os(node_name::VARIABLE);
    let node = node_name::find(options.node_name.as_deref(), name.as_deref())?;
    let log = logging::init(loaded.config.logging)?;
    let _instance = Instance::take(Path::new(paths::DAEMON_LOCK))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .build()
        .context("start the runtime")?;
    let outcome = runtime.block_on(Daemon::new(options, loaded, node, &log).live());
    // What blocks for longer is the kernel's or the disk's business, and is done again at the next
    // start.
    runtime.shutdown_timeout(Duration::from_secs(1));
    if let Err(error) = &outcome {
        logging::fatal(format_args!("{error:#}"));
    }
    outcome
}

/// What all parts share.
struct Daemon<'a> {
    options: &'a Options,
    log: &'a logging::Handle,
    settings: watch::Sender<Settings>,
    reports: Reports,
    heartbeat: Arc<Heartbeat>,
    end: CancellationToken,
    parts: JoinSet<&'static str>,
}

impl<'a> Daemon<'a> {
    fn new(options: &'a Options, loaded: Loaded, node: NodeName, log: &'a logging::Handle) -> Self {
        let reports = Reports {
            conditions: Arc::new(Conditions::default()),
            metrics: Arc::new(Metrics::new()),
        };
        tracing::info!(version = env!("CARGO_PKG_VERSION"), %node, "headcni-daemon begins");
        tell_of_loading(&loaded, &reports.conditions);
        Self {
            options,
            log,
            settings: watch::Sender::new(Settings::new(loaded.config, node)),
            reports,
            heartbeat: Arc::new(Heartbeat::default()),
            end: CancellationToken::new(),
            parts: JoinSet::new(),
        }
    }

    async fn live(mut self) -> Result<()> {
        let mut signals = Signals::new()?;
        let config = Arc::clone(&self.settings.borrow().config);
        let admin = self.serve_admin(&config).await?;
        let place = pods_place(&self.settings.borrow())?;
        let pods = Pods::new(place, self.reports.clone());
        self.begin(&pods).await?;
        let outcome = self.turn(&mut signals, &pods, admin.as_ref()).await;
        let _ = sd_notify::notify(&[NotifyState::Stopping]);
        tracing::info!("headcni-daemon ends; pods keep their network");
        self.end.cancel();
        let all = async { while self.parts.join_next().await.is_some() {} };
        if tokio::time::timeout(GOODBYE, all).await.is_err() {
            tracing::warn!("some parts did not end in time");
        }
        if let Some(admin) = admin {
            admin.shutdown().await;
        }
        outcome
    }

    /// Starts what answers on `/healthz`. An address that is not free yet is waited for beside
    /// everything else: pods don't need it.
    async fn serve_admin(&mut self, config: &Config) -> Result<Option<Server>> {
        let sources = Sources {
            heartbeat: Arc::clone(&self.heartbeat),
            conditions: Arc::clone(&self.reports.conditions),
            metrics: Arc::clone(&self.reports.metrics),
        };
        let monitoring = config.monitoring.clone();
        let end = self.end.clone();
        match Server::start(&monitoring, sources.clone(), Limits::default(), &end).await {
            Ok(server) => Ok(Some(server)),
            Err(error) if error.may_pass() => {
                tracing::error!(%error, "trying again");
                self.spawn("admin", async move {
                    let mut server = None;
                    while server.is_none() && !end.is_cancelled() {
                        tokio::time::sleep(ADMIN_RETRY).await;
                        let limits = Limits::default();
                        server = Server::start(&monitoring, sources.clone(), limits, &end)
                            .await
                            .ok();
                    }
                    end.cancelled().await;
                    if let Some(server) = server {
                        server.shutdown().await;
                    }
                });
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
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

        let end = &self.end.clone();
        let conditions = Arc::clone(&self.reports.conditions);
        let settings = self.settings.clone();
        self.spawn(
            "discovery",
            discovery::keep(settings, conditions, end.clone()),
        );
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
                    // The networks may be others: there is another pool to be measured.
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
    async fn turn(
        &mut self,
        signals: &mut Signals,
        pods: &Pods,
        admin: Option<&Server>,
    ) -> Result<()> {
        let mut beat = tokio::time::interval(BEAT);
        let began = Instant::now();
        let mut is_told = false;
        loop {
            tokio::select! {
                _ = beat.tick() => {
                    self.heartbeat.beat();
                    if is_told {
                        let _ = sd_notify::notify(&[NotifyState::Watchdog]);
                    }
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
                    let _ = sd_notify::notify(&[NotifyState::Reloading]);
                    self.reload(pods, admin).await;
                    self.tell_systemd(&[NotifyState::Ready]);
                }
                Some(ended) = self.parts.join_next() => match ended {
                    Ok(name) => bail!("the part {name} has ended by itself: this is a bug"),
                    Err(error) => bail!("a part has panicked: this is a bug: {error}"),
                }
            }
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
    async fn reload(&mut self, pods: &Pods, admin: Option<&Server>) {
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
        tell_of_loading(&loaded, &self.reports.conditions);
        let before = Arc::clone(&self.settings.borrow().config);
        if loaded.config == *before {
            tracing::info!("the configuration was loaded and is the same");
            return;
        }
        tracing::info!("the configuration was loaded and has changed");
        for key in config::needs_restart(&before, &loaded.config) {
            tracing::warn!(key, "this takes effect when the daemon is restarted");
        }
        self.log.reload(loaded.config.logging);
        if let Some(admin) = admin {
            admin.reload(&loaded.config.monitoring);
        }
        self.settings
            .send_modify(|settings| settings.config = Arc::new(loaded.config));
        match pods_place(&self.settings.borrow()) {
            Ok(place) => pods.move_to(place),
            Err(error) => tracing::error!(%error, "pods are looked for where they were"),
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
