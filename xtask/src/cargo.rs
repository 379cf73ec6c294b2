//! The cargo that runs this program, run again.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use lab::tools::workspace_dir;
use serde_json::Value;

use crate::run::output;

/// A cargo command in the workspace, whatever directory the caller stands in.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(workspace_dir());
    command
}

/// What cargo knows about the workspace and all its dependencies.
pub(crate) fn metadata() -> Result<Value> {
    metadata_for(&[])
}

/// The same, but of what these targets need, if any are named.
pub(crate) fn metadata_for(targets: &[&str]) -> Result<Value> {
    let mut command = cargo(&["metadata", "--format-version=1", "--locked"]);
    for target in targets {
        command.args(["--filter-platform", target]);
    }
    serde_json::from_str(&output(&mut command)?).context("parse cargo metadata")
}

/// Where cargo leaves what it builds.
pub(crate) fn target_dir() -> Result<PathBuf> {
    let metadata = metadata()?;
    let path = metadata["target_directory"]
        .as_str()
        .context("metadata has no target directory")?;
    Ok(PathBuf::from(path))
}
