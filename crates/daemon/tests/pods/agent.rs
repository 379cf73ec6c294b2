//! The daemon's knowledge of pods as a process inside of a node, which does as a script says.
//!
//! It is this very test program: only a process of the node sees its files, its network and its
//! boot as the daemon does. Time is told by the script, so that nobody has to wait for it.

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
const NAME: &str = "agent::does_as_a_script_says";

/// What the process shall do.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Script {
    pub(crate) network: String,
    pub(crate) is_bridge: bool,
    pub(crate) steps: Vec<Step>,
}

/// One thing to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Step {
    /// Look for left-overs, so many seconds after the start by either clock.
    Pass { monotonic: u64, wall: i64 },
    /// Look at everything.
    Resync,
    /// Be told of a call.
    Told {
        verb: String,
        container: String,
        code: Option<u32>,
    },
    /// Somebody else does something.
    Shell(String),
    /// Tell what is known.
    Tell,
    /// Keep the view, and collect what is older than a moment, until so many pods are known.
    Keep { shell: String, until: usize },
}

/// What the process tells after a step.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Report {
    /// Kind, container and cause of what was collected.
    pub(crate) collected: Vec<(String, String, String)>,
    /// What is left by kind: lease, link, route, state.
    pub(crate) left: [usize; 4],
    pub(crate) troubles: Vec<String>,
    /// Whether what is left behind is under control, and why.
    pub(crate) condition: (bool, String),
    /// What is counted of left-overs, pods and addresses.
    pub(crate) metrics: Vec<String>,
    /// Container, state, addresses, link and hardware address of who is known.
    pub(crate) known: Vec<(String, String, String, String, String)>,
    pub(crate) differences: Vec<String>,
    /// Links that can be restored, with their addresses.
    pub(crate) links: Vec<(String, String)>,
    pub(crate) ports: Vec<String>,
    pub(crate) failures: Vec<u32>,
}

impl Step {
    /// A look for left-overs so many seconds after the start.
    pub(crate) fn pass(seconds: u64) -> Self {
        let wall = i64::try_from(seconds).unwrap();
        Self::Pass {
            monotonic: seconds,
            wall,
        }
    }

    pub(crate) fn told(verb: &str, container: &str) -> Self {
        Self::Told {
            verb: verb.to_owned(),
            container: container.to_owned(),
            code: None,
        }
    }
}

/// The program and the arguments that make an agent.
pub(crate) fn line() -> Vec<String> {
    let program = env::current_exe().unwrap().display().to_string();
    let arguments = ["--ignored", "--exact", NAME, "--nocapture"];
    [program]
        .into_iter()
        .chain(arguments.map(str::to_owned))
        .collect()
}

/// Lets a command be an agent's, by this script.
pub(crate) fn instruct<'a>(command: &'a mut Command, script: &Script) -> &'a mut Command {
    command.env(VARIABLE, serde_json::to_string(script).unwrap())
}

/// What an agent has told, a report per step.
#[track_caller]
pub(crate) fn reports(stdout: &str) -> Vec<Report> {
    let lines = stdout.lines().filter_map(|line| line.split_once("REPORT "));
    lines
        .map(|(_, report)| serde_json::from_str(report).unwrap())
        .collect()
}

#[test]
#[ignore = "the other tests run it inside of a node"]
fn does_as_a_script_says() {
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
            Step::Pass { monotonic, wall } => pass(&pods, at(start, monotonic, wall), &mut report),
            Step::Resync => report.troubles = pods.resync(),
            Step::Told {
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
            Step::Keep { shell, until } => keep(&pods, &reports, &shell, until),
            Step::Tell => tell(&pods, &mut report),
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
            report.condition = (state.holds, state.message);
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

/// Does as the daemon does, with little patience.
fn keep(pods: &Arc<Pods>, reports: &Telemetry, script: &str, until: usize) {
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

fn pass(pods: &Pods, now: Now, report: &mut Report) {
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

fn tell(pods: &Pods, report: &mut Report) {
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
