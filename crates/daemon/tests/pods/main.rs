//! The daemon's view of a node's pods, with real netns and plugin calls.

#![expect(
    clippy::unwrap_used,
    reason = "a failure outside the code under test must fail the test"
)]

mod agent;
mod bridge_mode;
mod calls_in_progress;
mod clock_jumps;
mod controller_loops;
mod deleted_records;
mod earlier_boot;
mod ended_pods;
mod failed_collection;
mod fixture;
mod hidden_netns;
mod killed_add;
mod leaked_leases;
mod pod_index;
mod record_stamps;
