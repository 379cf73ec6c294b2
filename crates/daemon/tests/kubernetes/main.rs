//! With a real Kubernetes API: what daemons learn there, and what they say.

#![expect(
    clippy::unwrap_used,
    reason = "these are tests, and clippy takes only the functions marked so for tests"
)]

mod api;
mod behind_nat;
mod change;
mod chart;
mod crowd;
mod farewell;
mod hooks;
mod install;
mod scale;
mod stage;
mod static_pod;
mod stream;
mod takeover;
mod trouble;
mod waves;
mod cluster;
