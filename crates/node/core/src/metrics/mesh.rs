//! Metrics of the mesh. Peers are not a label: their number has no bound.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::labels::{ByCredential, ByPath, ByRepair, ByRouteState, ByServerCall, ByTraffic};
use super::{Durations, Float, Times};

#[derive(Debug)]
pub struct MeshMetrics {
    pub peers: Family<ByPath, Gauge>,
    pub latency: Histogram,
    pub handshake_age: Float,
    pub bytes: Family<ByTraffic, Counter>,
    pub path_changes: Counter,
    pub credential_expiry: Family<ByCredential, Float>,
    pub routes: Family<ByRouteState, Gauge>,
    pub server_duration: Times<ByServerCall>,
    pub repairs: Family<ByRepair, Counter>,
    pub clock_skew: Float,
    pub time_to_serve: Float,
    pub(super) began: Instant,
    pub(super) has_served: AtomicBool,
}

impl MeshMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        macro_rules! register {
            ($name:literal, $help:literal, $metric:expr) => {{
                let metric = $metric;
                registry.register($name, $help, metric.clone());
                metric
            }};
        }
        macro_rules! seconds {
            ($name:literal, $help:literal, $metric:expr) => {{
                let metric = $metric;
                registry.register_with_unit($name, $help, Unit::Seconds, metric.clone());
                metric
            }};
        }
        Self {
            peers: register!("mesh_peers", "Peers by path", Family::default()),
            latency: seconds!(
                "mesh_latency",
                "Round trip to a peer",
                prometheus_client::metrics::family::MetricConstructor::new_metric(&Durations)
            ),
            handshake_age: seconds!(
                "mesh_handshake_age",
                "Age of the oldest handshake with an active peer",
                Float::default()
            ),
            bytes: register!("mesh_bytes", "Bytes through the mesh", Family::default()),
            path_changes: register!(
                "mesh_path_changes",
                "Changes of the path to a peer",
                Counter::default()
            ),
            credential_expiry: seconds!(
                "credential_expiry",
                "Time until a key expires",
                Family::default()
            ),
            routes: register!(
                "mesh_routes",
                "Routes of this node by state",
                Family::default()
            ),
            server_duration: seconds!(
                "headscale_request_duration",
                "Duration of Headscale requests",
                Family::new_with_constructor(Durations)
            ),
            repairs: register!(
                "mesh_repairs",
                "Actions to join or stay in the tailnet",
                Family::default()
            ),
            clock_skew: seconds!(
                "clock_skew",
                "This node's clock minus Headscale's",
                Float::default()
            ),
            time_to_serve: seconds!(
                "mesh_time_to_serve",
                "Time from the daemon's start until its routes were served",
                Float::default()
            ),
            began: Instant::now(),
            has_served: AtomicBool::new(false),
        }
    }

    /// Records the first time that routes are served; returns the seconds since the start only then.
    pub fn note_served(&self) -> Option<f64> {
        if self.has_served.swap(true, Ordering::Relaxed) {
            return None;
        }
        let seconds = self.began.elapsed().as_secs_f64();
        self.time_to_serve.set(seconds);
        Some(seconds)
    }
}
