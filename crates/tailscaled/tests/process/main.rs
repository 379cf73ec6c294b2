//! The real tailscaled, and the real Headscale that it joins, in namespaces of the lab.

#![expect(
    clippy::unwrap_used,
    reason = "whatever fails outside the code under test shall end the test"
)]

mod faults;
mod joining;
mod life;
mod logs;
mod members;
mod policies;
mod prefs;
mod quiet;
mod scene;
