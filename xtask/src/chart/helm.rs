//! Helm, without a cluster.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Output};

use anyhow::{Context, Result, bail};

/// Which cluster the chart is rendered for. A helm that was built as ours was knows an ancient one only.
const KUBERNETES: [&str; 2] = ["--kube-version", "1.29.0"];

/// A helm, and the chart that it is asked about.
pub(super) struct Helm {
    program: PathBuf,
    chart: PathBuf,
}

impl Helm {
    pub(super) fn new(program: PathBuf, chart: PathBuf) -> Self {
        Self { program, chart }
    }

    /// Fails with what helm finds fault with; warnings count.
    pub(super) fn lint<A: AsRef<OsStr>>(&self, values: &[A]) -> Result<()> {
        let output = self.output(&["lint", "--strict"], values)?;
        if !output.status.success() {
            bail!("helm lint:\n{}", said(&output));
        }
        Ok(())
    }

    /// What the chart makes of values: hooks and tests are in it.
    pub(super) fn template<A: AsRef<OsStr>>(&self, values: &[A]) -> Result<String> {
        let output = self.output(&["template", "headcni"], values)?;
        if !output.status.success() {
            bail!("helm template:\n{}", said(&output));
        }
        String::from_utf8(output.stdout).context("helm printed no UTF-8")
    }

    /// Why values are refused, if they are.
    pub(super) fn refusal<A: AsRef<OsStr>>(&self, values: &[A]) -> Result<Option<String>> {
        let output = self.output(&["template", "headcni"], values)?;
        Ok((!output.status.success()).then(|| said(&output)))
    }

    fn output<A: AsRef<OsStr>>(&self, words: &[&str], values: &[A]) -> Result<Output> {
        let mut command = Command::new(&self.program);
        command.args(words).arg(&self.chart);
        command.args(KUBERNETES).args(values);
        // Nobody's settings and no cluster: what comes out depends on the chart alone.
        command.env("HELM_NO_PLUGINS", "1").env_remove("KUBECONFIG");
        command
            .output()
            .with_context(|| format!("start {}", self.program.display()))
    }
}

fn said(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    )
}
