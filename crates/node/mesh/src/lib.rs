//! This node's place in the mesh: who it is there, which networks lead to it, and which lead to
//! others.
//!
//! [`plan`] says what has to be done, [`remotes`] whose word counts, [`outside`] which pods get a route
//! of their own, [`apart`] which addresses must not be used by anybody else, [`passage`] what the policy
//! lets through, [`verdict`] what a person is told; all of them are pure.

pub mod apart;
mod around;
mod beside;
mod former;
mod greeted;
mod hostname;
mod inputs;
mod keep;
mod link;
mod measure;
mod member;
pub mod memory;
mod namespace;
mod ours;
pub mod outside;
mod owners;
pub mod passage;
mod patience;
pub mod plan;
pub mod remotes;
mod remove;
mod resolver;
mod server;
mod session;
mod unheard;
pub mod verdict;
mod way;

use std::path::Path;

use node_core::MeshState;
use node_core::conditions::{Condition, Conditions};

/// The mesh as it was known before this start; blocks.
pub fn load(state_dir: &Path) -> MeshState {
    memory::Kept::load(state_dir).memory().view()
}

pub use keep::{Ends, MeshChannels, keep};
pub use remove::remove;
pub use way::Way;

/// What is told about the mesh.
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

/// Says that there is no mesh, which is no fault.
pub fn report_none(conditions: &Conditions) {
    for condition in CONDITIONS {
        conditions.holds(
            condition,
            "there is no mesh: headscale.url is not set, or tailscale.mode is off",
        );
    }
}
