//! Helm, as a cluster administrator uses it.

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
const TIMEOUT: Duration = Duration::from_mins(8);

/// Runs on the control plane's node, with its own cache and configuration.
#[derive(Debug)]
pub struct Helm {
    node: Node,
    kubeconfig: PathBuf,
    home: TempDir,
}

impl Helm {
    pub fn new(node: &Node, plane: &ControlPlane) -> Result<Self> {
        Ok(Self {
            node: node.clone(),
            kubeconfig: plane.admin().kubeconfig().to_path_buf(),
            home: TempDir::new().context("make a directory for helm")?,
        })
    }

    /// Runs helm in the workspace directory, where `charts/headcni` is the chart; returns stdout.
    pub fn run(&self, args: &[&str]) -> Result<String> {
        let output = self.attempt(args)?;
        let all = || format!("{}{}", output.stdout, output.stderr);
        ensure!(output.status.success(), "helm {args:?}:\n{}", all());
        Ok(output.stdout)
    }

    /// The same, whatever the exit status.
    pub fn attempt(&self, args: &[&str]) -> Result<Output> {
        let home = self.home.path();
        let mut command = self.node.command("sh");
        // nsenter starts in `/`.
        command
            .args(["-c", "cd \"$0\" && exec \"$@\""])
            .arg(workspace_dir())
            .arg(HELM.program("helm"))
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HELM_CACHE_HOME", home.join("cache"))
            .env("HELM_CONFIG_HOME", home.join("config"))
            .env("HELM_DATA_HOME", home.join("data"))
            .args(args);
        Running::spawn(&mut command, b"")?.wait(TIMEOUT)
    }
}
