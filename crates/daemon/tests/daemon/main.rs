//! The real daemon on a node of its own, with real plugin calls against it.

#![expect(
    clippy::unwrap_used,
    reason = "whatever fails outside the code under test shall end the test"
)]
#![expect(clippy::unused_self, reason = "what is done in a scene reads as such")]

mod bridge;
mod churn;
mod hanging;
mod hostile;
mod hung;
mod leases;
mod life;
mod moving;
mod observability;
mod open_files;
mod orphans;
mod repair;
mod scene;
mod secrets;
mod systemd;
mod uninstalling;
