//! The control plane and kubelets. `make e2e` runs these.

#![expect(
    clippy::unwrap_used,
    reason = "a failure outside the code under test must fail the test"
)]

mod control_plane;
mod rbac;
mod workers;
