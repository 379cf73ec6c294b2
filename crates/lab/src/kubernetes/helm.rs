//! Helm, as somebody who may do everything uses it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use super::ControlPlane;
use crate::netns::Netns;
use crate::node::Node;
use crate::process::{Output, Running};
use crate::tools::kubernetes::HELM;
use crate::tools::workspace_dir;

/// Hooks wait for nodes, and nodes for each other.
const PATIENCE: Duration = Duration::from_mins(8);

/// A helm in the control plane's node, with files of its own.
#[derive(Debug)]
pub struct Helm<'a> {
    node: &'a Node,
    kubeconfig: PathBuf,
    home: TempDir,
}

impl<'a> Helm<'a> {
    /// One for a cluster, which has to be there as long as it is used.
    pub fn new(node: &'a Node, plane: &ControlPlane) -> Result<Self> {
        Ok(Self {
            node,
            kubeconfig: plane.admin().kubeconfig().to_path_buf(),
            home: TempDir::new().context("make a directory for helm")?,
        })
    }

    /// Runs it in the project's directory, so that `charts/headcni` is the chart, and returns what it says.
    pub fn run(&self, args: &[&str]) -> Result<String> {
        let output = self.attempt(args)?;
        let said = || format!("{}{}", output.stdout, output.stderr);
        ensure!(output.status.success(), "helm {args:?}:\n{}", said());
        Ok(output.stdout)
    }

    /// The same, even if it fails.
    pub fn attempt(&self, args: &[&str]) -> Result<Output> {
        let home = self.home.path();
        let mut command = self.node.command("sh");
        // Whoever enters a node is in its first directory.
        command
            .args(["-c", "cd \"$0\" && exec \"$@\""])
            .arg(workspace_dir())
            .arg(HELM.program("helm"))
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HELM_CACHE_HOME", home.join("cache"))
            .env("HELM_CONFIG_HOME", home.join("config"))
            .env("HELM_DATA_HOME", home.join("data"))
            .args(args);
        Running::spawn(&mut command, b"")?.wait(PATIENCE)
    }
}
