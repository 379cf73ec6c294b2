//! What programs of the lab get of the environment of whoever runs it: next to nothing.
//!
//! A machine that builds may need a proxy, and a pod that tests run in has variables of its own. With
//! those a daemon of the lab would look for its server behind that proxy, or take itself for that pod's.

use std::env;
use std::ffi::OsString;
use std::process::Command;

/// What says where things are and how to talk, and nothing that a program under test goes by.
const KEPT: [&str; 6] = ["PATH", "HOME", "TMPDIR", "TERM", "LANG", "RUST_BACKTRACE"];

/// Takes all of this process's environment away from a command but what every program may have. What is
/// set on it from now on counts.
pub fn with_clean_environment(command: &mut Command) -> &mut Command {
    with_only(command, &KEPT)
}

/// The same for a CNI plugin: it gets `PATH`, which nsenter and plugins that exec iptables need.
pub(crate) fn bare(command: &mut Command) -> &mut Command {
    with_only(command, &["PATH"])
}

fn with_only<'c>(command: &'c mut Command, names: &[&str]) -> &'c mut Command {
    let own = |name: &&str| Some((OsString::from(name), env::var_os(name)?));
    command.env_clear().envs(names.iter().filter_map(own))
}
