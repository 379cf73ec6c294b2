//! Real daemons, a real tailscaled each, a real Headscale, and pods on different nodes.

#![expect(
    clippy::unwrap_used,
    reason = "a failure outside the code under test must fail the test"
)]

mod bridge_mode;
mod conditions;
mod credentials;
mod extra_host_routes;
mod faults;
mod headscale_versions;
mod host_tailscaled;
mod http_proxy;
mod magic_dns;
mod managed_netns;
mod pod_connectivity;
mod secrets;
mod state_dir;
mod tailscaled_sidecar;
