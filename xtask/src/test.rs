//! Everything, on a machine that has only Rust, Go and apt.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use lab::tools::{TAILSCALE, cache_dir, workspace_dir};
use serde_json::Value;

use crate::cargo::{cargo, metadata};
use crate::check::check;
use crate::run::{is_root, run, say};
use crate::{chart, dist, tools};

/// The test targets, in whatever crate, that need a real Kubernetes.
const END_TO_END: &str = "kubernetes";
/// Those whose tests have meshes, and mostly wait.
const MESHES: &str = "mesh";

/// Fetches, builds, checks, and then runs every test against the real components, but not those
/// against a real Kubernetes.
pub(crate) fn test() -> Result<()> {
    let start = Instant::now();
    insist_on_root("make test")?;
    tools::ensure()?;
    check()?;
    run(&mut cargo(&["test", "--workspace", "--doc"]))?;
    let targets = test_targets(&metadata()?);
    let others = targets.iter().map(String::as_str);
    let others = others.filter(|target| ![END_TO_END, MESHES].contains(target));
    let others = run(&mut test_these(others));
    // A test that waits for minutes needs no core, and must not take one from others. Two at a time is
    // what those that have work to do agree on among themselves. They tell how long repairs took.
    let mut meshes = test_these([MESHES].into_iter());
    let meshes = run(meshes.args(["--", "--test-threads=3", "--show-output"]));
    others.and(meshes)?;
    say(start, "test: all passed");
    Ok(())
}

/// Fetches, builds, and then looks at the chart, and runs the tests against a real Kubernetes.
pub(crate) fn end_to_end() -> Result<()> {
    let start = Instant::now();
    insist_on_root("make e2e")?;
    tools::ensure_for_kubernetes()?;
    dist::build()?;
    chart::run(&[])?;
    lay_out_image()?;
    let mut tests = test_these([END_TO_END].into_iter());
    // Each has a cluster, and waits for it most of the time. Some have measured something.
    run(tests.args(["--", "--test-threads=2", "--show-output"]))?;
    say(start, "e2e: all passed");
    Ok(())
}

/// The files of the image, which workers then run Pods of.
fn lay_out_image() -> Result<()> {
    let dir = workspace_dir().join("dist/image");
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("remove {}", dir.display()))?;
    }
    let mut build = Command::new(workspace_dir().join("image/build"));
    let tailscaled = TAILSCALE.program("tailscaled");
    build
        .arg("--root")
        .arg(&dir)
        .arg("--tailscaled")
        .arg(tailscaled);
    run(&mut build)
}

fn insist_on_root(command: &str) -> Result<()> {
    if !is_root()? {
        bail!("tests make network namespaces, and only root may: run \"sudo {command}\"");
    }
    Ok(())
}

/// All of them, even after a failure: on a slow machine one wants to know once. Cargo runs one target
/// after the other, so whoever starts whole clusters has the machine for itself.
fn test_these<'a>(targets: impl Iterator<Item = &'a str>) -> Command {
    let mut command = cargo(&["test", "--workspace", "--no-fail-fast"]);
    for target in targets {
        command.args(["--test", target]);
    }
    command
        .env("HEADCNI_BIN_DIR", dist::bin_dir())
        .env("HEADCNI_CACHE", cache_dir());
    command
}

/// The names of the workspace's test targets. Several crates may have one of the same name.
fn test_targets(metadata: &Value) -> BTreeSet<String> {
    let rows = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let members = rows(&metadata["workspace_members"]);
    let packages = rows(&metadata["packages"]).into_iter();
    packages
        .filter(|package| members.contains(&package["id"]))
        .flat_map(|package| rows(&package["targets"]))
        .filter(|target| rows(&target["kind"]).iter().any(|kind| kind == "test"))
        .filter_map(|target| Some(target["name"].as_str()?.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_tests_of_the_workspace_are_known_by_name() {
        let target = |kind: &str, name: &str| json!({ "kind": [kind], "name": name });
        let metadata = json!({
            "workspace_members": ["a", "b"],
            "packages": [
                { "id": "a", "targets": [target("lib", "a"), target("test", "mesh")] },
                { "id": "b", "targets": [target("test", "mesh"), target("test", "real")] },
                { "id": "serde", "targets": [target("test", "theirs")] },
            ],
        });
        let names: Vec<_> = test_targets(&metadata).into_iter().collect();
        assert_eq!(names, ["mesh", "real"]);
    }

    #[test]
    fn there_are_tests_with_a_mesh_and_against_a_real_kubernetes() {
        let targets = test_targets(&metadata().unwrap());
        assert!([END_TO_END, MESHES].iter().all(|it| targets.contains(*it)));
    }
}
