//! The control plane that tests against a real Kubernetes stand on. `make e2e` runs these.

#![expect(
    clippy::unwrap_used,
    reason = "these are tests, and clippy takes only the functions marked so for tests"
)]

mod control_plane;
mod rights;
mod workers;
