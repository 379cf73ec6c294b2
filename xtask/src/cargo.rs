//! The cargo that runs this program.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use lab::tools::workspace_dir;
use serde_json::Value;

use crate::process::output;

/// A cargo command in the workspace.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(workspace_dir());
    command
}

/// Cargo's target directory.
pub(crate) fn target_dir() -> Result<PathBuf> {
    let metadata = output(&mut cargo(&["metadata", "--format-version=1", "--no-deps"]))?;
    let metadata: Value = serde_json::from_str(&metadata).context("parse cargo metadata")?;
    let path = metadata["target_directory"]
        .as_str()
        .context("cargo metadata has no target directory")?;
    Ok(PathBuf::from(path))
}
