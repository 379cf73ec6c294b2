//! The Helm chart: linted, rendered with every set of values that is kept beside it, and looked at.
//!
//! What needs a cluster is not here. What is here needs helm, which is built if it is missing, and a
//! `headcni-daemon`, which has the last word on its configuration.

mod config;
mod helm;
mod mesh;
mod object;
mod pod;
mod rights;
mod schema;
mod secrets;
mod shape;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use lab::tools::workspace_dir;

use crate::run::say;
use crate::{dist, tools};
use helm::Helm;
use object::Rendering;

/// What a file of bad values says is told of them, in its first line.
const SAYS: &str = "# says: ";

/// Checks the chart; with `schema`, writes its schema anew.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        [] => check(),
        ["schema"] => schema::write(&dir()),
        _ => bail!("chart takes schema, not {words:?}"),
    }
}

/// Where the chart is.
fn dir() -> PathBuf {
    workspace_dir().join("charts/headcni")
}

fn check() -> Result<()> {
    let start = Instant::now();
    // The cheapest first.
    schema::check(&dir())?;
    let helm = Helm::new(tools::ensure_helm()?, dir());
    // Whoever names other binaries wants those asked.
    if env::var_os("HEADCNI_BIN_DIR").is_none() && !dist::bin_dir().join("headcni-daemon").is_file()
    {
        dist::build()?;
    }
    let (good, bad) = (files(&dir().join("ci"))?, files(&dir().join("ci/bad"))?);
    let mut faults = Vec::new();
    for file in &good {
        let values = ["--values".as_ref(), file.as_os_str()];
        helm.lint(&values)?;
        let rendering = Rendering::parse(&helm.template(&values)?)?;
        let text = fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
        let found = rendering_faults(&rendering, Some(&text))?;
        faults.extend(found.iter().map(|fault| format!("{}: {fault}", name(file))));
    }
    let commands = commands()?;
    for command in &commands {
        let rendering = Rendering::parse(&helm.template(command)?)?;
        let found = rendering_faults(&rendering, None)?;
        faults.extend(found.iter().map(|fault| format!("{command:?}: {fault}")));
    }
    for file in &bad {
        faults.extend(refusal_fault(&helm, file)?);
    }
    faults.extend(static_pod_faults()?);
    if !faults.is_empty() {
        bail!("the chart:\n  {}", faults.join("\n  "));
    }
    let (sets, refused) = (good.len() + commands.len(), bad.len());
    say(
        start,
        &format!("chart: {sets} sets of values are as they should be, {refused} are refused"),
    );
    Ok(())
}

/// All that is wrong with what the chart makes of values, which are a text of YAML.
fn rendering_faults(rendering: &Rendering, values: Option<&str>) -> Result<Vec<String>> {
    let mut faults = shape::faults(rendering);
    faults.extend(pod::faults(rendering));
    faults.extend(mesh::faults(rendering));
    faults.extend(rights::faults(rendering));
    faults.extend(secrets::faults(rendering));
    faults.extend(config::faults(rendering, values)?);
    Ok(faults)
}

/// What is wrong with how bad values are refused.
fn refusal_fault(helm: &Helm, file: &Path) -> Result<Option<String>> {
    let text = fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    let first = text.lines().next().unwrap_or_default();
    let Some(expected) = first.strip_prefix(SAYS) else {
        bail!("{} does not begin with {SAYS:?}", file.display());
    };
    let name = name(file);
    Ok(
        match helm.refusal(&["--values".as_ref(), file.as_os_str()])? {
            None => Some(format!("bad/{name} is not refused")),
            Some(said) if !said.contains(expected) => Some(format!(
                "bad/{name}: {expected:?} is not in what is said:\n{said}"
            )),
            Some(_) => None,
        },
    )
}

/// The pod for nodes without an API has to be as sound as the chart's.
fn static_pod_faults() -> Result<Vec<String>> {
    let path = workspace_dir().join("deploy/static-pod/headcni-daemon.yaml");
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let rendering = Rendering::parse(&text)?;
    let mut faults = pod::faults(&rendering);
    faults.extend(mesh::faults(&rendering));
    Ok(faults
        .iter()
        .map(|fault| format!("static pod: {fault}"))
        .collect())
}

/// Values that the chart's documents give on the command line, and none at all.
fn commands() -> Result<Vec<Vec<String>>> {
    let path = dir().join("ci/commands");
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let words = lines.map(|line| line.split_whitespace().map(str::to_owned).collect());
    Ok([Vec::new()].into_iter().chain(words).collect())
}

/// The YAML files of a directory, by their names.
fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let list = || -> std::io::Result<Vec<PathBuf>> {
        let entries = fs::read_dir(dir)?;
        entries.map(|entry| Ok(entry?.path())).collect()
    };
    let mut files = list().with_context(|| format!("list {}", dir.display()))?;
    files.retain(|file| {
        file.extension()
            .is_some_and(|extension| extension == "yaml")
    });
    files.sort();
    if files.is_empty() {
        bail!("no values in {}", dir.display());
    }
    Ok(files)
}

fn name(file: &Path) -> String {
    file.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}
