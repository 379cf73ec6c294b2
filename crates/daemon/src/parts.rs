//! The parts that run beside each other, and what each of them has to be given.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use api::event::Event;
use api::paths;
use ipnet::IpNet;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admin::{self, AdminContext, Heartbeat};
use crate::causes::with_causes;
use crate::conditions::Condition;
use crate::config::{Config, MeshMode, TuneLinks};
use crate::keeper::{Outcome, Part, Reports, keep};
use crate::leases::{self, Home, LeasesError};
use crate::metrics::Metrics;
use crate::network::{self, Desired, Wanted};
use crate::pods::{self, Pods};
use crate::settings::Settings;
use crate::socket::{self, ApiContext, ApiSettings, PodLabelMode, Queries};
use crate::{cniconf, discovery};
use crate::{kubernetes, mesh};

/// How often everything is looked at though nothing happened.
const FULL_PASS: Duration = Duration::from_mins(1);
/// Events that wait to be counted.
const EVENT_QUEUE: usize = 256;
/// What is said as long as the node's networks are not known.
const WAITING: &str = "waiting for the node's networks: see PodCIDRKnown";

/// The parts, and what all of them share.
pub struct Parts {
    /// What they go by.
    pub settings: watch::Sender<Settings>,
    /// Where they report.
    pub reports: Reports,
    /// Ends them all.
    pub end: CancellationToken,
    running: JoinSet<&'static str>,
}

impl Parts {
    /// None runs yet.
    pub fn new(settings: Settings, reports: Reports) -> Self {
        Self {
            settings: watch::Sender::new(settings),
            reports,
            end: CancellationToken::new(),
            running: JoinSet::new(),
        }
    }

    /// Waits for a part to end, which none does by itself. Pends if there is none.
    pub async fn ended(&mut self) -> anyhow::Error {
        match self.running.join_next().await {
            Some(Ok(name)) => anyhow!("the part {name} has ended by itself: this is a bug"),
            Some(Err(error)) => anyhow!("a part has panicked: this is a bug: {error}"),
            None => std::future::pending().await,
        }
    }

    /// Ends all parts, and waits for them. Whether all ended in time.
    pub async fn end(&mut self, limit: Duration) -> bool {
        self.end.cancel();
        let all = async { while self.running.join_next().await.is_some() {} };
        tokio::time::timeout(limit, all).await.is_ok()
    }

    /// Starts what people and probes ask, before everything else.
    pub async fn serve_admin(&mut self, heartbeat: &Arc<Heartbeat>) -> Result<()> {
        let context = AdminContext {
            heartbeat: Arc::clone(heartbeat),
            conditions: Arc::clone(&self.reports.conditions),
            metrics: Arc::clone(&self.reports.metrics),
        };
        let serving = admin::start(context, self.settings.subscribe(), self.end.clone()).await?;
        self.spawn("admin", serving);
        Ok(())
    }

    /// Starts all other parts.
    pub async fn begin(&mut self, pods: &Arc<Pods>) -> Result<()> {
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
        self.ask_kubernetes(pods);
        let signals = network::Signals::default();
        self.keep_mesh(pods, &signals);
        self.keep_cni_files(pods);
        self.keep_network(pods, signals);
        self.keep_pods(pods);
        self.listen(pods);
        Ok(())
    }

    fn ask_kubernetes(&mut self, pods: &Arc<Pods>) {
        let ends = kubernetes::Ends {
            settings: self.settings.clone(),
            reports: self.reports.clone(),
            pods: Arc::clone(pods),
            state_dir: paths::DAEMON_STATE_DIR.into(),
        };
        self.spawn("kubernetes", kubernetes::keep(ends, self.end.clone()));
    }

    fn keep_mesh(&mut self, pods: &Arc<Pods>, signals: &network::Signals) {
        let ends = mesh::Ends {
            settings: self.settings.clone(),
            reports: self.reports.clone(),
            pods: Arc::clone(pods),
            state_dir: paths::DAEMON_STATE_DIR.into(),
            own_network: Arc::clone(&signals.mesh),
        };
        self.spawn("mesh", mesh::keep(ends, self.end.clone()));
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
        self.keep(part, move |settings| {
            let outcome = write_cni_files(&settings, &known)?;
            if !outcome.repairs.is_empty() {
                // How many addresses there are stands in these files.
                known.missed();
            }
            Ok(outcome)
        });
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

    fn keep_network(&mut self, pods: &Arc<Pods>, signals: network::Signals) {
        let part = Part {
            name: "network",
            condition: Condition::NetworkReady,
            changed: Arc::clone(&signals.network),
            every: FULL_PASS,
        };
        let known = Arc::clone(pods);
        let awaiting = signals.clone();
        self.keep(part, move |settings| {
            keep_network_up(&settings, &known, &awaiting)
        });
        let part = Part {
            name: "firewall",
            condition: Condition::ForwardingAllowed,
            changed: Arc::clone(&signals.firewall),
            every: FULL_PASS,
        };
        self.keep(part, |settings| look_at_firewalls(&settings));
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
        self.keep(part, move |settings| {
            let pods = &settings.config.pods;
            collecting.collect(pods::Limits {
                grace: pods.orphan_grace.0,
                interval: pods.orphan_interval.0,
            })
        });
    }

    /// Serves the API on the Unix socket, and handles the plugin's events.
    fn listen(&mut self, pods: &Arc<Pods>) {
        let (events, incoming) = mpsc::channel(EVENT_QUEUE);
        let events_lost = Arc::new(Notify::new());
        let context = ApiContext {
            events,
            events_lost: Arc::clone(&events_lost),
            queries: Queries {
                started: Instant::now(),
                settings: self.settings.subscribe(),
                conditions: Arc::clone(&self.reports.conditions),
                pods: Arc::clone(pods),
            },
            metrics: Arc::clone(&self.reports.metrics),
            conditions: Arc::clone(&self.reports.conditions),
        };
        let serving = socket::run(ApiSettings::default(), context, self.end.clone());
        self.spawn("socket", serving);
        let handling = handle_events(
            incoming,
            events_lost,
            Arc::clone(pods),
            Arc::clone(&self.reports.metrics),
            self.settings.subscribe(),
        );
        let end = self.end.clone();
        self.spawn("events", async move {
            end.run_until_cancelled(handling).await;
        });
    }

    /// Starts a part that makes passes.
    fn keep(
        &mut self,
        part: Part,
        pass: impl Fn(Settings) -> Result<Outcome, String> + Clone + Send + Sync + 'static,
    ) {
        let name = part.name;
        let (settings, end) = (self.settings.subscribe(), self.end.clone());
        self.spawn(name, keep(part, self.reports.clone(), settings, end, pass));
    }

    /// Starts a part; it must not end before the daemon does.
    fn spawn(
        &mut self,
        name: &'static str,
        work: impl std::future::Future<Output = ()> + Send + 'static,
    ) {
        self.running.spawn(async move {
            work.await;
            name
        });
    }
}

fn write_cni_files(settings: &Settings, pods: &Pods) -> Result<Outcome, String> {
    let networks = settings.networks.as_ref().ok_or(WAITING)?;
    settings.mesh.gate(&settings.config)?;
    let dirs = settings.dirs();
    let explained = |error: cniconf::CniConfError| error.explained();
    let desired = cniconf::desired(&settings.config, &networks.local, &networks.base, &dirs)
        .map_err(explained)?;
    let (home, life) = (Home::of(&settings.config), |home: &Home| pods.living(home));
    let refused = |error: LeasesError| with_causes(&error);
    let mut known = leases::Known::load(&dirs);
    known.check(&home, life).map_err(refused)?;
    known.note(&home).map_err(refused)?;
    let outcome = cniconf::ensure(&desired).map_err(explained)?;
    known.forget_others(&home, life).map_err(refused)?;
    Ok(outcome.into())
}

fn keep_network_up(
    settings: &Settings,
    pods: &Pods,
    signals: &network::Signals,
) -> Result<Outcome, String> {
    let networks = settings.networks.as_ref().ok_or(WAITING)?;
    let mesh = way_to_others(settings);
    let (local, base) = (&networks.local, &networks.base);
    let desired = Desired::new(&settings.config, local, base, mesh.as_ref())
        .map_err(|error| with_causes(&error))?;
    signals.wait_for(&desired);
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
    network::pass(&network::Place::default(), &wanted).map_err(|error| with_causes(&error))
}

fn way_to_others(settings: &Settings) -> Option<network::Mesh> {
    let link = settings.mesh.link.as_ref()?;
    let via = |address: &IpAddr| match address {
        IpAddr::V4(ipv4) => (Some(*ipv4), None),
        IpAddr::V6(ipv6) => (None, Some(*ipv6)),
    };
    let via: Vec<_> = link.via.iter().map(via).collect();
    Some(network::Mesh {
        link: link.name.clone(),
        via_ipv4: via.iter().find_map(|(ipv4, _)| *ipv4),
        via_ipv6: via.iter().find_map(|(_, ipv6)| *ipv6),
        remotes: settings.mesh.remotes.clone(),
        stolen: settings.mesh.stolen.clone(),
        members: settings.mesh.members.clone(),
        outside: settings.mesh.outside.clone(),
        is_ours: is_made_by_ours(&settings.config, link),
        tune_links: settings.config.tailscale.tune_links == TuneLinks::Auto,
    })
}

/// Whether a link is the interface of our own tailscaled, which is in the host's network. It is known for a
/// moment longer than the configuration that made it.
fn is_made_by_ours(config: &Config, link: &mesh::MeshLink) -> bool {
    let tailscale = &config.tailscale;
    tailscale.mode != MeshMode::Host && link.name == tailscale.interface
}

fn look_at_firewalls(settings: &Settings) -> Result<Outcome, String> {
    let networks = settings.networks.as_ref().ok_or(WAITING)?;
    // A tailscaled that is not in the host's network is one that the host forwards for.
    let link = settings.mesh.link.iter();
    let apart = link.flat_map(|link| link.via.iter().copied().map(IpNet::from));
    let wanted = network::firewall::Settings {
        networks: networks.local.iter().copied().chain(apart).collect(),
        integrate: settings.config.firewall.integrate,
    };
    network::firewall::pass(&network::Place::default(), &wanted)
        .map_err(|error| with_causes(&error))
}

/// Counts each event, and updates the pod that it is about. After a lost one, all pods are listed.
async fn handle_events(
    mut events: mpsc::Receiver<Box<Event>>,
    events_lost: Arc<Notify>,
    pods: Arc<Pods>,
    metrics: Arc<Metrics>,
    settings: watch::Receiver<Settings>,
) {
    loop {
        tokio::select! {
            event = events.recv() => {
                let Some(event) = event else { return };
                let pod_labels = if settings.borrow().config.monitoring.pod_labels {
                    PodLabelMode::On
                } else {
                    PodLabelMode::Off
                };
                socket::count(&metrics, &event, pod_labels);
                pods.told(*event).await;
            }
            () = events_lost.notified() => pods.missed(),
        }
    }
}
