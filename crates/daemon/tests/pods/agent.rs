//! The daemon's pod index and orphan collection in a process on a node, driven by a script.
//!
//! It is this test program: only a process on the node has its files, netns and boot ID. The script sets
//! the time.

use std::env;
use std::io::{self, Write};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::event::Event;
use node_config::{Config, Mode};
use node_core::conditions::{Condition, Conditions};
use node_core::metrics::Metrics;
use node_core::reconcile::{self, Controller, Telemetry};
use node_pods::{Limits, Now, PodPaths, Pods};
use prometheus_client::encoding::text::encode;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub(crate) const GRACE: u64 = 300;
pub(crate) const INTERVAL: u64 = 60;
const VARIABLE: &str = "HEADCNI_PODS_SCRIPT";
const NAME: &str = "agent::runs_a_script";

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Script {
    pub(crate) network: String,
    pub(crate) is_bridge: bool,
    pub(crate) steps: Vec<Step>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Step {
    /// Collect orphans at these times after the start, by either clock.
    Pass { monotonic: u64, wall: i64 },
    /// Resync all pods.
    Resync,
    /// An event of a CNI call.
    Event {
        verb: String,
        container: String,
        code: Option<u32>,
    },
    /// Run a shell script.
    Shell(String),
    /// Report the index.
    Report,
    /// Run the controllers with short intervals until so many pods are listed.
    RunControllers { shell: String, until: usize },
}

/// The report after a step.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Report {
    /// Kind, container and cause.
    pub(crate) collected: Vec<(String, String, String)>,
    /// Orphans by kind: lease, link, route, state.
    pub(crate) left: [usize; 4],
    pub(crate) troubles: Vec<String>,
    /// The condition's status and message.
    pub(crate) condition: (bool, String),
    /// Metrics of orphans, pods and addresses.
    pub(crate) metrics: Vec<String>,
    /// Container, state, addresses, link and MAC of listed pods.
    pub(crate) known: Vec<(String, String, String, String, String)>,
    pub(crate) differences: Vec<String>,
    /// Links that can be restored, with their addresses.
    pub(crate) links: Vec<(String, String)>,
    pub(crate) ports: Vec<String>,
    pub(crate) failures: Vec<u32>,
}

impl Step {
    /// An observation so many seconds after the start.
    pub(crate) fn pass(seconds: u64) -> Self {
        let wall = i64::try_from(seconds).unwrap();
        Self::Pass {
            monotonic: seconds,
            wall,
        }
    }

    pub(crate) fn event(verb: &str, container: &str) -> Self {
        Self::Event {
            verb: verb.to_owned(),
            container: container.to_owned(),
            code: None,
        }
    }
}

pub(crate) fn line() -> Vec<String> {
    let program = env::current_exe().unwrap().display().to_string();
    let arguments = ["--ignored", "--exact", NAME, "--nocapture"];
    [program]
        .into_iter()
        .chain(arguments.map(str::to_owned))
        .collect()
}

pub(crate) fn instruct<'a>(command: &'a mut Command, script: &Script) -> &'a mut Command {
    command.env(VARIABLE, serde_json::to_string(script).unwrap())
}

#[track_caller]
pub(crate) fn reports(stdout: &str) -> Vec<Report> {
    let lines = stdout.lines().filter_map(|line| line.split_once("REPORT "));
    lines
        .map(|(_, report)| serde_json::from_str(report).unwrap())
        .collect()
}

#[test]
#[ignore = "the other tests run it inside of a node"]
fn runs_a_script() {
    let script = env::var(VARIABLE).expect("the other tests say what to do");
    let script: Script = serde_json::from_str(&script).unwrap();
    let mut config = Config::default();
    config.cni.name = script.network;
    if script.is_bridge {
        config.cni.mode = Mode::Bridge;
    }
    let paths = PodPaths::of(&config, "/opt/cni/bin".as_ref()).unwrap();
    let reports = Telemetry {
        conditions: Arc::new(Conditions::default()),
        metrics: Arc::new(Metrics::default()),
    };
    let pods = Pods::new(paths, reports.clone());
    let start = Now::read();
    for step in script.steps {
        let mut report = Report::default();
        match step {
            Step::Pass { monotonic, wall } => {
                collect(&pods, at(start, monotonic, wall), &mut report);
            }
            Step::Resync => report.troubles = pods.resync(),
            Step::Event {
                verb,
                container,
                code,
            } => pods.handle_event_blocking(&Event {
                verb,
                container,
                code,
                network: config.cni.name.clone(),
                ifname: "eth0".to_owned(),
                ..Event::default()
            }),
            Step::Shell(text) => shell(&text),
            Step::RunControllers { shell, until } => {
                run_controllers(&pods, &reports, &shell, until);
            }
            Step::Report => report_index(&pods, &mut report),
        }
        report_on(&reports, &mut report);
        let line = serde_json::to_string(&report).unwrap();
        io::stdout()
            .write_all(format!("\nREPORT {line}\n").as_bytes())
            .unwrap();
    }
}

fn at(start: Now, monotonic: u64, wall: i64) -> Now {
    let seconds = Duration::from_secs(wall.unsigned_abs());
    Now {
        monotonic: start.monotonic + Duration::from_secs(monotonic),
        wall: if wall < 0 {
            start.wall - seconds
        } else {
            start.wall + seconds
        },
    }
}

fn shell(text: &str) {
    let status = Command::new("sh").args(["-ec", text]).status().unwrap();
    assert!(status.success(), "{text}");
}

fn report_on(reports: &Telemetry, report: &mut Report) {
    let conditions = reports.conditions.snapshot();
    for (condition, state) in conditions {
        if condition == Condition::OrphansCollected {
            report.condition = (state.is_true(), state.message);
        }
    }
    let mut text = String::new();
    encode(&mut text, &reports.metrics.registry).unwrap();
    let is_ours = |line: &&str| {
        let names = ["headcni_orphans", "headcni_pods", "headcni_ip_pool"];
        names.iter().any(|name| line.starts_with(name))
    };
    report.metrics = text.lines().filter(is_ours).map(str::to_owned).collect();
}

/// Runs the controllers as the daemon does, with short intervals.
fn run_controllers(pods: &Arc<Pods>, reports: &Telemetry, script: &str, until: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let end = CancellationToken::new();
        let viewing = tokio::spawn(Arc::clone(pods).run(end.clone()));
        let limits = Limits {
            grace: Duration::from_millis(50),
            interval: Duration::from_millis(20),
        };
        let part = Controller {
            name: "orphans",
            condition: Condition::OrphansCollected,
            changed: Arc::default(),
            interval: limits.interval,
        };
        let (_settings, settings) = watch::channel(limits);
        let collecting = Arc::clone(pods);
        let collecting = reconcile::run(
            part,
            reports.clone(),
            settings,
            end.clone(),
            move |limits| collecting.collect(limits),
        );
        let collecting = tokio::spawn(collecting);
        shell(script);
        pods.request_resync();
        let deadline = Instant::now() + lab::DEADLINE;
        while pods.snapshot().len() != until {
            assert!(Instant::now() < deadline, "{:?}", pods.snapshot());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        end.cancel();
        viewing.await.unwrap();
        collecting.await.unwrap();
    });
}

fn collect(pods: &Pods, now: Now, report: &mut Report) {
    let limits = Limits {
        grace: Duration::from_secs(GRACE),
        interval: Duration::from_secs(INTERVAL),
    };
    let (outcome, tally) = pods.collect_at(limits, now);
    report.troubles = tally.errors;
    assert_eq!(outcome.is_err(), !report.troubles.is_empty());
    for (kind, key, cause) in tally.collected {
        let container = key.container.to_string();
        let cause = format!("{cause:?}");
        report
            .collected
            .push((kind.name().to_owned(), container, cause));
    }
    for (place, kind) in node_pods::Kind::ALL.into_iter().enumerate() {
        report.left[place] = tally.left.get(&kind).copied().unwrap_or_default();
    }
}

fn report_index(pods: &Pods, report: &mut Report) {
    let joined = |ips: &[std::net::IpAddr]| {
        let texts: Vec<String> = ips.iter().map(ToString::to_string).collect();
        texts.join(" ")
    };
    let known = |one: &api::messages::Pod| {
        (
            one.container.clone(),
            format!("{:?}", one.state),
            joined(&one.ips),
            one.host_link.clone().unwrap_or_default(),
            one.mac.clone().unwrap_or_default(),
        )
    };
    report.known = pods.snapshot().iter().map(known).collect();
    report.differences = pods.differences();
    let links = pods.pod_links();
    report.links = links
        .iter()
        .map(|link| (link.host_link.clone(), joined(&link.addresses)))
        .collect();
    report.ports = pods.host_ports().iter().map(ToString::to_string).collect();
    report.failures = pods.failures().iter().map(|one| one.code).collect();
}
