//! The environment of programs of the lab.
//!
//! The environment of the test process must not leak: a build machine may set a proxy, and a CI pod sets
//! Kubernetes variables, which a daemon under test would use.

use std::env;
use std::ffi::OsString;
use std::process::Command;

const INHERITED: [&str; 6] = ["PATH", "HOME", "TMPDIR", "TERM", "LANG", "RUST_BACKTRACE"];

/// Clears a command's environment except for `PATH`, `HOME` and the like.
pub fn with_clean_environment(command: &mut Command) -> &mut Command {
    with_only(command, &INHERITED)
}

/// Only `PATH`, which nsenter and plugins that exec iptables need.
pub(crate) fn bare(command: &mut Command) -> &mut Command {
    with_only(command, &["PATH"])
}

fn with_only<'c>(command: &'c mut Command, names: &[&str]) -> &'c mut Command {
    let own = |name: &&str| Some((OsString::from(name), env::var_os(name)?));
    command.env_clear().envs(names.iter().filter_map(own))
}
