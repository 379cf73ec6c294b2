//! The server under test: on a thread of this process, or in a process of its own that can be
//! stopped and measured.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use api::event::Event;
use api::messages::{Answer, Ask, Pod, PodCidr, Status};
use daemon::socket::{self, Ends, News, Question, Settings};
use lab::{Running, eventually};
use node_core::conditions::{Condition, Conditions};
use node_core::metrics::Metrics;
use prometheus_client::encoding::text::encode;
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// How long anything may take that should happen at once.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// How many events the consumer has room for: few, so that a lag is soon seen.
const ROOM: usize = 4;

/// A server on a thread.
pub(crate) struct Server {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) conditions: Arc<Conditions>,
    news: Arc<Mutex<Vec<News>>>,
    is_lagging: Arc<AtomicBool>,
    end: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens at a path; everything is consumed at once.
    pub(crate) fn start(path: &Path) -> Self {
        Self::start_with(path, false)
    }

    /// Listens at a path; nothing is consumed until [`Self::catch_up`].
    pub(crate) fn start_lagging(path: &Path) -> Self {
        Self::start_with(path, true)
    }

    fn start_with(path: &Path, is_lagging: bool) -> Self {
        let mut server = Self {
            metrics: Arc::new(Metrics::new()),
            conditions: Arc::default(),
            news: Arc::default(),
            is_lagging: Arc::new(AtomicBool::new(is_lagging)),
            end: CancellationToken::new(),
            thread: None,
        };
        let (sender, mut receiver) = mpsc::channel(ROOM);
        let (metrics, conditions) = (server.metrics.clone(), server.conditions.clone());
        let work = run(
            path.to_owned(),
            sender,
            metrics,
            conditions,
            server.end.clone(),
        );
        let (news, lagging) = (server.news.clone(), server.is_lagging.clone());
        let consume = async move {
            while lagging.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            while let Some(one) = receiver.recv().await {
                news.lock().unwrap().push(one);
            }
        };
        server.thread = Some(thread::spawn(move || block_on(work, consume)));
        server.await_open();
        server
    }

    pub(crate) fn await_open(&self) {
        eventually(SOON, "the socket is open", || {
            let states = self.conditions.snapshot();
            let state = states.iter().find(|(c, _)| *c == Condition::SocketOpen);
            state.filter(|(_, state)| state.holds).map(drop)
        })
        .unwrap();
    }

    pub(crate) fn catch_up(&self) {
        self.is_lagging.store(false, Ordering::SeqCst);
    }

    /// All news so far.
    pub(crate) fn news(&self) -> Vec<News> {
        self.news.lock().unwrap().clone()
    }

    /// All events so far.
    pub(crate) fn events(&self) -> Vec<Event> {
        let event = |news| match news {
            News::Event(event) => Some(*event),
            News::Missed => None,
        };
        self.news().into_iter().filter_map(event).collect()
    }

    /// As many events as these, as soon as they are there, and not one more.
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

    /// All metrics as text.
    pub(crate) fn metrics_text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.metrics.registry).unwrap();
        text
    }

    /// Waits for a line of the metrics.
    #[track_caller]
    pub(crate) fn await_metric(&self, line: &str) {
        let what = format!("metric {line}");
        let found = eventually(SOON, &what, || {
            let text = self.metrics_text();
            text.lines().any(|found| found == line).then_some(())
        });
        assert!(found.is_ok(), "{what} is not in\n{}", self.metrics_text());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end.cancel();
        if let Some(thread) = self.thread.take() {
            // A test that fails has said why.
            let _ = thread.join();
        }
    }
}

async fn run(
    path: PathBuf,
    news: mpsc::Sender<News>,
    metrics: Arc<Metrics>,
    conditions: Arc<Conditions>,
    end: CancellationToken,
) {
    let (questions, mut asked) = mpsc::channel(4);
    let ends = Ends {
        news,
        questions,
        metrics,
        conditions,
    };
    let settings = Settings {
        path,
        look_every: Duration::from_millis(500),
    };
    let answer = async {
        while let Some(Question { ask, reply }) = asked.recv().await {
            if let Some(answer) = answer(ask) {
                // Whoever asked may have left.
                let _ = reply.send(answer);
            }
        }
    };
    tokio::join!(socket::serve(settings, ends, end), answer);
}

/// Some answer to each question; none at all to `routes`.
fn answer(ask: Ask) -> Option<Result<Answer, String>> {
    Some(Ok(match ask {
        Ask::Status => Answer::Status(Box::new(Status {
            node_name: "n1".to_owned(),
            ..Status::default()
        })),
        // Some megabytes: more than any socket holds.
        Ask::Pods => Answer::Pods(vec![
            Pod {
                container: "c".repeat(1000),
                ..Pod::default()
            };
            5000
        ]),
        Ask::Leases => Answer::Leases(Vec::new()),
        Ask::Interfaces => return Some(Err("the kernel is out".to_owned())),
        Ask::Routes => return None,
        Ask::PodCidr => Answer::PodCidr(PodCidr::default()),
        Ask::Conditions => Answer::Conditions(Vec::new()),
    }))
}

fn block_on(serving: impl Future<Output = ()>, consuming: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        tokio::select! {
            () = serving => {}
            () = consuming => {}
        }
    });
}

const PATH: &str = "HEADCNI_TEST_SOCKET";

/// A server in a process of its own. It writes the container of each event to a file.
pub(crate) struct Process {
    running: Running,
    told: PathBuf,
}

impl Process {
    pub(crate) fn start(path: &Path) -> Self {
        let told = path.with_file_name("told");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "server::process", "--ignored", "--nocapture"])
            .env(PATH, path);
        let running = Running::spawn(&mut command, b"").unwrap();
        eventually(SOON, "the process listens", || path.exists().then_some(())).unwrap();
        Self { running, told }
    }

    /// Stops it: it does nothing any more, though everything of it stays.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
        eventually(SOON, "it is stopped", || {
            let state = self.status("State:")?;
            state.starts_with('T').then_some(())
        })
        .unwrap();
    }

    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.running.pid()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    /// How much memory it has had at the most, in KiB.
    pub(crate) fn peak_kib(&self) -> u64 {
        let peak = self.status("VmHWM:").unwrap();
        peak.trim_end_matches(" kB").trim().parse().unwrap()
    }

    /// How many files and sockets it has open.
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

    /// The containers of all events so far, and how each of them was told.
    pub(crate) fn told(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.told).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    #[track_caller]
    pub(crate) fn await_told(&self, count: usize) -> Vec<String> {
        let what = format!("{count} events");
        eventually(SOON * 3, &what, || {
            Some(self.told()).filter(|told| told.len() >= count)
        })
        .unwrap_or_else(|error| panic!("{error}: {:?}", self.told()))
    }
}

#[test]
#[ignore = "it is no test but the process that others start"]
fn process() {
    use std::io::Write;

    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let path = PathBuf::from(std::env::var_os(PATH).unwrap());
    let mut told = std::fs::File::create(path.with_file_name("told")).unwrap();
    let (sender, mut receiver) = mpsc::channel(ROOM);
    let metrics = Arc::new(Metrics::new());
    let end = CancellationToken::new();
    let work = run(path, sender, metrics, Arc::default(), end);
    block_on(work, async move {
        while let Some(news) = receiver.recv().await {
            let line = match news {
                News::Event(event) => format!("{} {}\n", event.verb, event.container),
                News::Missed => "missed\n".to_owned(),
            };
            told.write_all(line.as_bytes()).unwrap();
        }
    });
}
