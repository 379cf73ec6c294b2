//! The real daemon on a node, with real plugin calls.

#![expect(
    clippy::unwrap_used,
    reason = "a failure outside the code under test must fail the test"
)]

mod bridge_mode;
mod changed_pod_cidr;
mod daemon_kills;
mod hanging_disk;
mod hanging_programs;
mod hostile_clients;
mod lease_store_location;
mod lifecycle;
mod observability;
mod open_files;
mod orphans;
mod repair;
mod secrets;
mod systemd_notify;
mod uninstall;

use std::time::Duration;

use api::client::Client;
use lab::scenario::DaemonNode;

const TIMEOUT: Duration = Duration::from_secs(10);

/// A client of the daemon's socket.
fn client(node: &DaemonNode) -> Client {
    Client::new(node.file("/run/headcni/daemon.sock"), TIMEOUT)
}
