//! This node in the tailnet: its membership, the routes that lead to it, and the routes of its peers.
//!
//! The decisions are pure: [`membership::plan`] (what to do), [`peers::select`] (which peer routes are
//! accepted), [`extra_host_routes`], [`address_overlap`], [`status::acl`] and [`status::conditions`].
//! The controller observes, acts and publishes a [`MeshState`].

pub mod address_overlap;
mod coexistence;
mod control_server;
mod controller;
pub mod extra_host_routes;
mod hostname;
mod inputs;
mod interface;
mod managed;
pub mod membership;
mod mode;
mod mode_change;
mod netns;
pub mod peers;
mod resolver;
pub mod state;
pub mod status;
mod uninstall;

use std::path::Path;

use node_core::MeshState;
use node_core::conditions::{Condition, Conditions};

pub use controller::{MeshChannels, MeshController};
pub use mode::TailscaledMode;
pub use uninstall::remove;

/// The conditions that this crate reports.
pub const CONDITIONS: [Condition; 8] = [
    Condition::NoAddressOverlap,
    Condition::MeshJoined,
    Condition::HeadscaleReachable,
    Condition::PodCidrUnique,
    Condition::RoutesServed,
    Condition::PolicyAllowsPods,
    Condition::CredentialsValid,
    Condition::ClockInSync,
];

/// The mesh as it was known before this start; blocks.
pub fn load(state_dir: &Path) -> MeshState {
    state::MeshStateFile::load(state_dir).memory().view()
}

/// A node without a mesh is healthy.
fn report_disabled(conditions: &Conditions) {
    for condition in CONDITIONS {
        conditions.holds(
            condition,
            "the mesh is disabled: headscale.url is not set, or tailscale.mode is off",
        );
    }
}
