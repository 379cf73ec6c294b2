//! The daemon: memory and CPU time with 250 pods, and the delay that it adds to ADD while it handles 200
//! events per second.
//!
//! Blocks with and without a daemon alternate. Events are sent in both, so that sending them is not part
//! of the difference.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use api::event::Event;
use api::http::HttpClient;
use api::messages::EVENTS_PATH;
use api::paths;
use lab::tools::{headcni, headcni_bin_dir, headcni_daemon};
use lab::with_clean_environment;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::call::Call;
use super::sandbox::Pod;
use super::table::{self, markdown, millis, percentile};

const PODS: usize = 250;
const IDLE: Duration = Duration::from_mins(1);
const EVENTS_PER_SECOND: u32 = 200;
/// ADDs per block.
const BLOCK: usize = 100;
/// About as often as a busy runtime.
const ADD_INTERVAL: Duration = Duration::from_millis(10);
/// Work right after the start is not measured.
const SETTLE: Duration = Duration::from_secs(2);
const START_TIMEOUT: Duration = Duration::from_secs(20);

const CONFIG: &str = "\
network:
  podCIDR:
    nodeLocal: 10.250.0.0/16
    base: 10.250.0.0/16
cni:
  exclusive: false
monitoring:
  address: 127.0.0.1:9844
logging:
  level: info
";

#[expect(clippy::print_stdout, reason = "the tables are the result")]
pub(super) fn measure(iterations: usize, state: &Path) -> Result<()> {
    overlay(state)?;
    fs::create_dir_all("/etc/headcni")?;
    File::create(paths::DAEMON_CONFIG)?.write_all(CONFIG.as_bytes())?;
    let daemon = Daemon::start(state)?;
    let config = plugin_config()?;
    let mut pods = Pods { made: 0 };

    let staying = pods.fresh(PODS)?;
    for pod in &staying {
        call("ADD", pod, &config)?;
    }
    let idle = daemon.idle()?;
    drop(daemon);

    let (mut with, mut without) = (Vec::new(), Vec::new());
    let blocks = (5 * iterations).div_ceil(BLOCK).max(2);
    let sent = AtomicU64::new(0);
    for nth in 0..2 * blocks {
        // Neither is always the first of a pair.
        let is_with = matches!(nth % 4, 0 | 3);
        let daemon = is_with.then(|| Daemon::start(state)).transpose()?;
        thread::sleep(SETTLE);
        let times = block(&mut pods, &config, &sent)?;
        if is_with {
            with.extend(times);
        } else {
            without.extend(times);
        }
        drop(daemon);
    }

    println!("## The daemon\n");
    println!(
        "{PODS} pods, {IDLE:?} idle: RSS {:.1} MiB, CPU {:.3} %\n",
        mib(idle.rss_kib),
        idle.cpu_percent
    );
    println!(
        "ADD with {EVENTS_PER_SECOND} events per second ({} calls each, {} events in all):\n",
        with.len(),
        sent.load(Ordering::Relaxed)
    );
    let rows = [("none", &without), ("running", &with)].map(|(name, times)| {
        let times = [50, 90, 99].map(|percent| millis(percentile(times, percent)));
        [name.to_owned()].into_iter().chain(times).collect()
    });
    println!("{}", markdown(1, "daemon | p50 | p90 | p99", rows));
    println!("{}", goals(&idle, &with, &without));
    Ok(())
}

fn goals(idle: &Idle, with: &[Duration], without: &[Duration]) -> String {
    let p99 = |times: &[Duration]| percentile(times, 99).as_secs_f64() * 1000.0;
    let delay = p99(with) - p99(without);
    let (rss, cpu) = (mib(idle.rss_kib), idle.cpu_percent);
    let goal = |goal: &str, measured: String, is_met| (goal.to_owned(), measured, Some(is_met));
    table::goals([
        goal("RSS ≤ 15 MiB", format!("{rss:.1} MiB"), rss <= 15.0),
        goal("idle CPU < 0.2 %", format!("{cpu:.3} %"), cpu < 0.2),
        goal(
            "delay of ADD at p99 ≤ 1 ms",
            format!("{delay:+.2} ms"),
            delay <= 1.0,
        ),
    ])
}

#[expect(
    clippy::cast_precision_loss,
    reason = "kibibytes of memory fit into 52 bits"
)]
fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

/// The daemon writes to these directories; the overlay keeps that on the measured disk.
fn overlay(state: &Path) -> Result<()> {
    for dir in ["etc", "var"] {
        let (upper, work) = (
            state.join(format!("{dir}-upper")),
            state.join(format!("{dir}-work")),
        );
        fs::create_dir_all(&upper)?;
        fs::create_dir_all(&work)?;
        let layers = format!(
            "lowerdir=/{dir},upperdir={},workdir={}",
            upper.display(),
            work.display()
        );
        let status = Command::new("mount")
            .args([
                "-t",
                "overlay",
                "overlay",
                "-o",
                &layers,
                &format!("/{dir}"),
            ])
            .status()
            .context("start mount")?;
        if !status.success() {
            bail!("mount an overlay on /{dir}: {status}");
        }
    }
    Ok(())
}

/// ADDs and DELs while events are sent.
fn block(pods: &mut Pods, config: &Value, sent: &AtomicU64) -> Result<Vec<Duration>> {
    let is_over = AtomicBool::new(false);
    let fresh = pods.fresh(BLOCK)?;
    let times = thread::scope(|scope| {
        scope.spawn(|| send_events(&is_over, sent));
        let start = Instant::now();
        let times: Result<Vec<Duration>> = (0..)
            .zip(&fresh)
            .map(|(nth, pod)| {
                thread::sleep(
                    (start + ADD_INTERVAL * nth).saturating_duration_since(Instant::now()),
                );
                call("ADD", pod, config)
            })
            .collect();
        is_over.store(true, Ordering::Relaxed);
        times
    })?;
    for pod in &fresh {
        call("DEL", pod, config)?;
    }
    Pod::remove_all(&fresh)?;
    Ok(times)
}

/// Sends events as the plugin does, with one connection each. The daemon may be absent.
fn send_events(is_over: &AtomicBool, sent: &AtomicU64) {
    let event = Event {
        version: api::event::VERSION,
        verb: "ADD".to_owned(),
        network: "bench".to_owned(),
        container: "0123456789abcdef".repeat(4),
        ifname: "eth0".to_owned(),
        mode: "native".to_owned(),
        // A failed ADD: after a successful one the daemon would look for the pod.
        code: Some(11),
        duration_us: 2000,
        ..Event::default()
    };
    let body = serde_json::to_vec(&event).unwrap_or_default();
    let client = HttpClient::new(paths::DAEMON_SOCKET);
    let start = Instant::now();
    for nth in 1.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        if client.post_json(EVENTS_PATH, || body.clone()).is_ok() {
            sent.fetch_add(1, Ordering::Relaxed);
        }
        let due = start + Duration::from_secs(1) / EVENTS_PER_SECOND * nth;
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}

struct Pods {
    made: usize,
}

impl Pods {
    fn fresh(&mut self, count: usize) -> Result<Vec<Pod>> {
        let numbers = self.made..self.made + count;
        self.made += count;
        Pod::make_all(numbers, headcni_bin_dir().as_os_str())
    }
}

/// Calls the plugin for a pod and returns the wall time.
fn call(verb: &str, pod: &Pod, config: &Value) -> Result<Duration> {
    let call = Call {
        program: &headcni(),
        config,
        container: &format!("bench-{}", pod.nth),
        pod,
    };
    call.wall(verb)
}

/// The plugin's configuration as a runtime derives it from the daemon's conflist.
fn plugin_config() -> Result<Value> {
    let text = fs::read_to_string("/etc/cni/net.d/10-headcni.conflist")?;
    let list: Value = serde_json::from_str(&text)?;
    let mut config = list["plugins"][0].clone();
    config["cniVersion"] = json!("1.1.0");
    config["name"] = list["name"].clone();
    Ok(config)
}

struct Idle {
    rss_kib: u64,
    cpu_percent: f64,
}

struct Daemon {
    process: Child,
    log: PathBuf,
}

impl Daemon {
    /// Starts it and waits until it has written the conflist.
    fn start(state: &Path) -> Result<Self> {
        let log = state.join("daemon.log");
        let daemon = Self {
            process: with_clean_environment(&mut Command::new(headcni_daemon()))
                .arg("run")
                .env("NODE_NAME", "bench")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(File::create(&log)?)
                .spawn()
                .context("start headcni-daemon")?,
            log,
        };
        let start = Instant::now();
        while UnixStream::connect(paths::DAEMON_SOCKET).is_err() || plugin_config().is_err() {
            if start.elapsed() > START_TIMEOUT {
                let log = fs::read_to_string(&daemon.log).unwrap_or_default();
                bail!("headcni-daemon is not ready after {START_TIMEOUT:?}:\n{log}");
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(daemon)
    }

    fn idle(&self) -> Result<Idle> {
        // The work for 250 new pods is done by then.
        thread::sleep(Duration::from_secs(10));
        let before = self.cpu_ticks()?;
        thread::sleep(IDLE);
        let ticks = self.cpu_ticks()? - before;
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let rss = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse().ok())
            .context("read VmRSS")?;
        // 100 ticks are a second on every Linux that we run on.
        let seconds = f64::from(u32::try_from(ticks)?) / 100.0;
        Ok(Idle {
            rss_kib: rss,
            cpu_percent: seconds / IDLE.as_secs_f64() * 100.0,
        })
    }

    /// User and system time, its children's included, in ticks.
    fn cpu_ticks(&self) -> Result<u64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.id()))?;
        let (_, fields) = stat.rsplit_once(')').context("read stat")?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        // utime, stime, cutime and cstime are 14 to 17; the state, 3, is the first here.
        let times = fields.get(11..15).context("read stat")?;
        times.iter().map(|time| Ok(time.parse::<u64>()?)).sum()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Ok(pid) = i32::try_from(self.process.id()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let _ = self.process.wait();
    }
}
