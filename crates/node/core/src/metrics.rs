//! The metrics: the body of `/metrics`.
//!
//! Labels have few values. Pod names are labels only with `monitoring.podLabels`.

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

/// Buckets from 100 µs to 10 s.
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

pub type Times<L> = Family<L, Histogram, Durations>;

pub type Float = Gauge<f64, AtomicU64>;

#[derive(Debug)]
pub struct Metrics {
    pub registry: Registry,
    /// Without our prefix.
    process: Registry,
    pub setup_duration: Times<PodLabels>,
    pub allocations: Family<ByStrategy, Counter>,
    pub errors: Family<ByError, Counter>,
    pub call_duration: Times<ByCall>,
    pub step_duration: Times<ByStep>,
    pub interfaces: Family<ByOutcome, Counter>,
    pub reconcile_duration: Times<ByController>,
    pub reconcile_errors: Family<ByController, Counter>,
    pub repairs: Family<ByController, Counter>,
    pub conditions: Family<ByCondition, Gauge>,
    pub pool_size: Family<ByFamily, Float>,
    pub pool_used: Family<ByFamily, Float>,
    pub orphans: Family<ByKind, Gauge>,
    pub orphans_collected: Family<ByKind, Counter>,
    pub pods: Gauge,
    pub events: Family<ByOutcome, Counter>,
    pub request_duration: Times<ByRequest>,
    pub log_lines_dropped: Counter,
    pub mesh: MeshMetrics,
}

impl Metrics {
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("headcni");
        registry.register(
            "build",
            "Version of headcni-daemon",
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
                "Time to set up a pod's network"
            ),
            allocations: register!(
                "ip_allocations",
                "Addresses given to pods",
                Family::default()
            ),
            errors: register!("network_errors", "Failed CNI calls", Family::default()),
            call_duration: seconds!("cni_call_duration", "Duration of CNI calls"),
            step_duration: seconds!("cni_step_duration", "Duration of the steps of CNI calls"),
            interfaces: register!(
                "interface_creations",
                "Pod interfaces created, or failed",
                Family::default()
            ),
            reconcile_duration: seconds!("reconcile_duration", "Duration of a reconcile pass"),
            reconcile_errors: register!(
                "reconcile_errors",
                "Failed reconcile passes",
                Family::default()
            ),
            repairs: register!(
                "repairs",
                "Differences found and repaired",
                Family::default()
            ),
            conditions: register!(
                "condition",
                "1 while a condition of /ready is True, else 0",
                Family::default()
            ),
            pool_size: register!("ip_pool_size", "Addresses for pods", Family::default()),
            pool_used: register!("ip_pool_used", "Leased addresses", Family::default()),
            orphans: register!("orphans", "Orphans not collected yet", Family::default()),
            orphans_collected: register!(
                "orphans_collected",
                "Collected orphans",
                Family::default()
            ),
            pods: register!("pods", "Attached pods", Gauge::default()),
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
