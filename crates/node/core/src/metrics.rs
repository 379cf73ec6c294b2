//! Everything that is counted or measured: the body of `/metrics`.
//!
//! Labels have few values each. A pod's name is one only if the configuration asks for it.

mod labels;
mod mesh;
mod process;

use std::fmt;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::conditions::Conditions;
use process::Process;

pub use labels::{
    ByCall, ByCondition, ByController, ByCredential, ByError, ByFamily, ByKind, ByOutcome, ByPath,
    ByRepair, ByRequest, ByRouteState, ByServerCall, ByStep, ByStrategy, ByTraffic, PodLabels,
};
pub use mesh::MeshMetrics;

/// Times from 100 µs to 10 s.
#[derive(Clone, Copy, Debug)]
pub struct Durations;

impl MetricConstructor<Histogram> for Durations {
    fn new_metric(&self) -> Histogram {
        Histogram::new([
            0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0,
            2.5, 5.0, 10.0,
        ])
    }
}

/// A family of histograms of times.
pub type Times<L> = Family<L, Histogram, Durations>;

/// A gauge with fractions.
pub type Float = Gauge<f64, AtomicU64>;

/// All metrics of the daemon.
#[derive(Debug)]
pub struct Metrics {
    /// What is served, under our name.
    pub registry: Registry,
    /// What every program has, under the names that all programs use.
    process: Registry,
    /// How long a successful ADD took.
    pub setup_duration: Times<PodLabels>,
    /// Addresses that were given.
    pub allocations: Family<ByStrategy, Counter>,
    /// Calls that failed.
    pub errors: Family<ByError, Counter>,
    /// How long calls took.
    pub call_duration: Times<ByCall>,
    /// How long parts of calls took.
    pub step_duration: Times<ByStep>,
    /// Interfaces that were made, or were not.
    pub interfaces: Family<ByOutcome, Counter>,
    /// How long a pass took.
    pub reconcile_duration: Times<ByController>,
    /// Passes that failed.
    pub reconcile_errors: Family<ByController, Counter>,
    /// What a pass had to put right.
    pub repairs: Family<ByController, Counter>,
    /// Whether each condition holds.
    pub conditions: Family<ByCondition, Gauge>,
    /// Addresses that can be given.
    pub pool_size: Family<ByFamily, Float>,
    /// Addresses that are given.
    pub pool_used: Family<ByFamily, Float>,
    /// Left-overs that are known and not collected yet.
    pub orphans: Family<ByKind, Gauge>,
    /// Left-overs that were collected.
    pub orphans_collected: Family<ByKind, Counter>,
    /// Pods that are attached.
    pub pods: Gauge,
    /// Events of the plugin: `accepted`, `dropped` or `invalid`.
    pub events: Family<ByOutcome, Counter>,
    /// How long GET requests on the socket took.
    pub request_duration: Times<ByRequest>,
    /// Log lines that were dropped because stderr was too slow.
    pub log_lines_dropped: Counter,
    /// The mesh.
    pub mesh: MeshMetrics,
}

impl Metrics {
    /// All of them, at nought.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("headcni");
        registry.register(
            "build",
            "Which headcni-daemon this is",
            Info::new([("version", env!("CARGO_PKG_VERSION"))]),
        );
        macro_rules! register {
            ($name:literal, $help:literal, $metric:expr) => {{
                let metric = $metric;
                registry.register($name, $help, metric.clone());
                metric
            }};
        }
        macro_rules! seconds {
            ($name:literal, $help:literal) => {{
                let metric = Family::new_with_constructor(Durations);
                registry.register_with_unit($name, $help, Unit::Seconds, metric.clone());
                metric
            }};
        }
        Self {
            setup_duration: seconds!(
                "pod_network_setup_duration",
                "How long it took to give a pod its network"
            ),
            allocations: register!(
                "ip_allocations",
                "Addresses that pods got",
                Family::default()
            ),
            errors: register!("network_errors", "Calls that failed", Family::default()),
            call_duration: seconds!("cni_call_duration", "Duration of CNI calls"),
            step_duration: seconds!("cni_step_duration", "Duration of the steps of CNI calls"),
            interfaces: register!(
                "interface_creations",
                "Interfaces of pods that were to be made",
                Family::default()
            ),
            reconcile_duration: seconds!("reconcile_duration", "How long a pass took"),
            reconcile_errors: register!(
                "reconcile_errors",
                "Passes that failed",
                Family::default()
            ),
            repairs: register!(
                "repairs",
                "Times that something was not as it should be and was put right",
                Family::default()
            ),
            conditions: register!(
                "condition",
                "Whether a condition of /ready holds",
                Family::default()
            ),
            pool_size: register!("ip_pool_size", "Addresses for pods", Family::default()),
            pool_used: register!(
                "ip_pool_used",
                "Addresses that pods have",
                Family::default()
            ),
            orphans: register!(
                "orphans",
                "What pods left behind and was not collected yet",
                Family::default()
            ),
            orphans_collected: register!(
                "orphans_collected",
                "What pods left behind and was collected",
                Family::default()
            ),
            pods: register!("pods", "Pods that are attached", Gauge::default()),
            events: register!(
                "plugin_events",
                "Events that the plugin posted",
                Family::default()
            ),
            request_duration: seconds!(
                "socket_request_duration",
                "Duration of GET requests on the socket"
            ),
            log_lines_dropped: register!(
                "log_lines_dropped",
                "Log lines dropped because stderr was too slow",
                Counter::default()
            ),
            mesh: MeshMetrics::register(&mut registry),
            registry,
            process: Process::registry(),
        }
    }

    /// The body of `/metrics`, in OpenMetrics. Reads `/proc`, so it blocks.
    pub fn render(&self, conditions: &Conditions) -> Result<String, fmt::Error> {
        for (condition, state) in conditions.snapshot() {
            let by = ByCondition {
                condition: condition.name().to_owned(),
            };
            self.conditions
                .get_or_create(&by)
                .set(i64::from(state.is_true()));
        }
        let mut body = String::new();
        text::encode_registry(&mut body, &self.registry)?;
        text::encode(&mut body, &self.process)?;
        Ok(body)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
