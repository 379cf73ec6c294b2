//! The admin server and the log, from outside: over real sockets and in real processes.

#![expect(
    clippy::unwrap_used,
    reason = "whatever fails outside the code under test shall end the test"
)]

mod answers;
#[cfg(all(
    feature = "profiling",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod cpu;
mod ending;
#[cfg(all(
    feature = "profiling",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod heap_profile;
mod limits;
mod logs;
mod openmetrics;
mod profiles;
mod scene;

use node_core::metrics;
