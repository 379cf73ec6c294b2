//! What is counted and measured of the mesh. Other nodes are not told apart: their number is not
//! ours to bound.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::labels::{ByCredential, ByPath, ByRepair, ByRouteState, ByServerCall, ByTraffic};
use super::{Durations, Float, Times};

/// All metrics of the mesh.
#[derive(Debug)]
pub struct MeshMetrics {
    /// Other nodes, by the way to them.
    pub peers: Family<ByPath, Gauge>,
    /// How long a packet to another node and back took.
    pub latency: Histogram,
    /// The longest time since a node's last handshake, of those that are talked to.
    pub handshake_age: Float,
    /// Bytes that went through the mesh.
    pub bytes: Family<ByTraffic, Counter>,
    /// Times that the way to a node became another one.
    pub path_changes: Counter,
    /// Time that is left of each key.
    pub credential_expiry: Family<ByCredential, Float>,
    /// This node's routes by state.
    pub routes: Family<ByRouteState, Gauge>,
    /// How long the server took to answer.
    pub server_duration: Times<ByServerCall>,
    /// What was done to be, or stay, a member.
    pub repairs: Family<ByRepair, Counter>,
    /// How far this node's clock is ahead of the server's.
    pub clock_skew: Float,
    /// How long it took from a daemon's start until packets for its pods were sent here.
    pub time_to_serve: Float,
    /// When the daemon began, as good as.
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
            peers: register!("mesh_peers", "Other nodes", Family::default()),
            latency: seconds!(
                "mesh_latency",
                "How long a packet to another node and back took",
                prometheus_client::metrics::family::MetricConstructor::new_metric(&Durations)
            ),
            handshake_age: seconds!(
                "mesh_handshake_age",
                "The longest time since the last handshake with a node that is talked to",
                Float::default()
            ),
            bytes: register!(
                "mesh_bytes",
                "Bytes that went through the mesh",
                Family::default()
            ),
            path_changes: register!(
                "mesh_path_changes",
                "Times that the way to a node became another one",
                Counter::default()
            ),
            credential_expiry: seconds!(
                "credential_expiry",
                "Time that is left of a key",
                Family::default()
            ),
            routes: register!(
                "mesh_routes",
                "Routes of this node by state",
                Family::default()
            ),
            server_duration: seconds!(
                "headscale_request_duration",
                "How long Headscale took to answer",
                Family::new_with_constructor(Durations)
            ),
            repairs: register!(
                "mesh_repairs",
                "What was done to become, or stay, a member of the mesh",
                Family::default()
            ),
            clock_skew: seconds!(
                "clock_skew",
                "How far this node's clock is ahead of Headscale's",
                Float::default()
            ),
            time_to_serve: seconds!(
                "mesh_time_to_serve",
                "From the daemon's start until packets for its pods were sent here",
                Float::default()
            ),
            began: Instant::now(),
            has_served: AtomicBool::new(false),
        }
    }

    /// Notes that packets for pods are sent here; how many seconds that took since the daemon began, if it
    /// is so for the first time.
    pub fn note_served(&self) -> Option<f64> {
        if self.has_served.swap(true, Ordering::Relaxed) {
            return None;
        }
        let seconds = self.began.elapsed().as_secs_f64();
        self.time_to_serve.set(seconds);
        Some(seconds)
    }
}
