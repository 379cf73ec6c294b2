//! Pod CIDR discovery on nodes of several kinds, with files as their tools write them.

#![expect(
    clippy::unwrap_used,
    reason = "a failure outside the code under test must fail the test"
)]

mod fixture;
mod hostile_files;
mod kubernetes_files;
mod source_order;
