//! The API server under test: on a thread of this process, or in a process of its own that can be
//! stopped and measured.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use api::event::Event;
use daemon::socket::{self, ApiContext, ApiSettings, Queries};
use lab::{Running, eventually};
use node_config::{Config, NodeConfig};
use node_core::conditions::{Condition, Conditions};
use node_core::metrics::Metrics;
use node_core::reconcile::Telemetry;
use node_pods::{PodPaths, Pods};
use prometheus_client::encoding::text::encode;
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

/// The deadline of everything that should happen at once.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Capacity of the event queue: small, so that it is full soon.
const EVENT_QUEUE: usize = 4;

/// A server on a thread.
pub(crate) struct Server {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) conditions: Arc<Conditions>,
    events: Arc<Mutex<Vec<Event>>>,
    events_lost: Arc<AtomicBool>,
    is_paused: Arc<AtomicBool>,
    shutdown: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens on `path` and consumes events at once.
    pub(crate) fn start(path: &Path) -> Self {
        Self::start_with(path, false)
    }

    /// Listens on `path` and consumes no event until [`Self::resume`].
    pub(crate) fn start_paused(path: &Path) -> Self {
        Self::start_with(path, true)
    }

    fn start_with(path: &Path, is_paused: bool) -> Self {
        let mut server = Self {
            metrics: Arc::new(Metrics::new()),
            conditions: Arc::default(),
            events: Arc::default(),
            events_lost: Arc::default(),
            is_paused: Arc::new(AtomicBool::new(is_paused)),
            shutdown: CancellationToken::new(),
            thread: None,
        };
        let (sender, mut receiver) = mpsc::channel(EVENT_QUEUE);
        let lost = Arc::new(Notify::new());
        let (metrics, conditions) = (server.metrics.clone(), server.conditions.clone());
        let context = context(sender, lost.clone(), metrics, conditions);
        let serving = socket::run(settings(path), context, server.shutdown.clone());
        let (events, paused) = (server.events.clone(), server.is_paused.clone());
        let consume = async move {
            while paused.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            while let Some(event) = receiver.recv().await {
                events.lock().unwrap().push(*event);
            }
        };
        let was_lost = server.events_lost.clone();
        let watch_lost = async move {
            lost.notified().await;
            was_lost.store(true, Ordering::SeqCst);
            std::future::pending::<()>().await;
        };
        let work = async {
            tokio::select! {
                () = serving => {}
                () = consume => {}
                () = watch_lost => {}
            }
        };
        server.thread = Some(thread::spawn(move || block_on(work)));
        eventually(SOON, "the socket is open", || {
            let states = server.conditions.snapshot();
            let state = states.iter().find(|(c, _)| *c == Condition::SocketOpen);
            state.filter(|(_, state)| state.is_true()).map(drop)
        })
        .unwrap();
        server
    }

    pub(crate) fn resume(&self) {
        self.is_paused.store(false, Ordering::SeqCst);
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }

    /// Whether the server has asked for a list of all pods.
    pub(crate) fn has_lost_events(&self) -> bool {
        self.events_lost.load(Ordering::SeqCst)
    }

    /// Waits for exactly this many events.
    #[track_caller]
    pub(crate) fn await_events(&self, count: usize) -> Vec<Event> {
        let what = format!("{count} events");
        let events = eventually(SOON, &what, || {
            Some(self.events()).filter(|events| events.len() >= count)
        });
        let events = events.unwrap();
        assert_eq!(events.len(), count, "{events:#?}");
        events
    }

    fn metrics_text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.metrics.registry).unwrap();
        text
    }

    /// Waits for a line of the metrics.
    #[track_caller]
    pub(crate) fn await_metric(&self, line: &str) {
        let found = eventually(SOON, line, || {
            let text = self.metrics_text();
            text.lines().any(|found| found == line).then_some(())
        });
        assert!(found.is_ok(), "{line} is not in\n{}", self.metrics_text());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shutdown.cancel();
        if let Some(thread) = self.thread.take() {
            // If it panicked, the test has failed already.
            let _ = thread.join();
        }
    }
}

fn settings(path: &Path) -> ApiSettings {
    ApiSettings {
        path: path.to_owned(),
        check_interval: Duration::from_millis(500),
    }
}

fn context(
    events: mpsc::Sender<Box<Event>>,
    events_lost: Arc<Notify>,
    metrics: Arc<Metrics>,
    conditions: Arc<Conditions>,
) -> ApiContext {
    let config = Arc::new(Config::default());
    let telemetry = Telemetry {
        conditions: Arc::clone(&conditions),
        metrics: Arc::clone(&metrics),
    };
    let node = node_core::node_name::find(Some("n1"), None).unwrap();
    let node_config = NodeConfig::new(Arc::clone(&config), node);
    let paths = PodPaths::of(&config, &node_config.dirs().bin_dir).unwrap();
    // The receivers keep the values when their senders are gone.
    ApiContext {
        events,
        events_lost,
        queries: Queries {
            started: Instant::now(),
            node_config: watch::Sender::new(node_config).subscribe(),
            discovery: watch::Sender::new(None).subscribe(),
            conditions: Arc::clone(&conditions),
            pods: Pods::new(paths, telemetry),
        },
        metrics,
        conditions,
    }
}

fn block_on(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(work);
}

const PATH: &str = "HEADCNI_TEST_SOCKET";

/// A server in a process of its own. It writes verb and container of each event to a file.
pub(crate) struct Process {
    running: Running,
    log: PathBuf,
}

impl Process {
    pub(crate) fn start(path: &Path) -> Self {
        let log = path.with_file_name("events");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "server::process", "--ignored", "--nocapture"])
            .env(PATH, path);
        let running = Running::spawn(&mut command, b"").unwrap();
        eventually(SOON, "the process listens", || path.exists().then_some(())).unwrap();
        Self { running, log }
    }

    /// Stops it with SIGSTOP.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
        eventually(SOON, "it is stopped", || {
            let state = self.status("State:")?;
            state.starts_with('T').then_some(())
        })
        .unwrap();
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.running.pid()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    /// Its peak RSS in KiB.
    pub(crate) fn peak_kib(&self) -> u64 {
        let peak = self.status("VmHWM:").unwrap();
        peak.trim_end_matches(" kB").trim().parse().unwrap()
    }

    pub(crate) fn open_files(&self) -> usize {
        let dir = format!("/proc/{}/fd", self.running.pid());
        std::fs::read_dir(dir).unwrap().count()
    }

    fn status(&self, key: &str) -> Option<String> {
        let path = format!("/proc/{}/status", self.running.pid());
        let text = std::fs::read_to_string(path).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        Some(line.trim().to_owned())
    }

    /// Verb and container of all events so far.
    pub(crate) fn events(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    #[track_caller]
    pub(crate) fn await_events(&self, count: usize) -> Vec<String> {
        let what = format!("{count} events");
        eventually(SOON * 3, &what, || {
            Some(self.events()).filter(|events| events.len() >= count)
        })
        .unwrap_or_else(|error| panic!("{error}: {:?}", self.events()))
    }
}

#[test]
#[ignore = "not a test: the process that Process::start starts"]
fn process() {
    use std::io::Write;

    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let path = PathBuf::from(std::env::var_os(PATH).unwrap());
    let mut log = std::fs::File::create(path.with_file_name("events")).unwrap();
    let (sender, mut receiver) = mpsc::channel(EVENT_QUEUE);
    let context = context(
        sender,
        Arc::default(),
        Arc::new(Metrics::new()),
        Arc::default(),
    );
    let serving = socket::run(settings(&path), context, CancellationToken::new());
    let consume = async move {
        while let Some(event) = receiver.recv().await {
            let line = format!("{} {}\n", event.verb, event.container);
            log.write_all(line.as_bytes()).unwrap();
        }
    };
    block_on(async {
        tokio::select! {
            () = serving => {}
            () = consume => {}
        }
    });
}
