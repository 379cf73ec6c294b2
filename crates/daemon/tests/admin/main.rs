//! The admin server over real sockets, and logging in real processes.

#![expect(
    clippy::unwrap_used,
    reason = "a failure outside the code under test ends the test"
)]

mod answers;
#[cfg(all(
    feature = "profiling",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod cpu_profile;
mod limits;
mod logging;
mod openmetrics;
mod profiles;
mod server;
mod shutdown;
