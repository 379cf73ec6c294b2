//! Licences, sources and banned crates by cargo-deny, and what it can't express.

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::cargo::cargo;
use crate::dist::{PLUGINS, musl_target};
use crate::process::{output, run};
use crate::tools::deny;

/// Families of crates that plugins must not link: a plugin lives for two milliseconds.
const BANNED_IN_PLUGINS: &[&str] = &["clap", "tokio", "tracing"];

/// The standard library has replacements; other crates may still use them.
const BANNED_IN_OURS: &[&str] = &["lazy_static", "once_cell"];

pub(super) fn check() -> Result<()> {
    let quiet = ["--log-level", "error", "check", "--hide-inclusion-graph"];
    run(deny(&quiet).args(["bans", "licenses", "sources"]))?;
    let metadata = output(&mut cargo(&["metadata", "--format-version=1", "--no-deps"]))?;
    let metadata: Value = serde_json::from_str(&metadata).context("parse cargo metadata")?;
    if let Some(error) = banned_in_ours(&metadata) {
        bail!("{error}: the standard library has a replacement");
    }
    check_plugins()
}

fn banned_in_ours(metadata: &Value) -> Option<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let packages = list(&metadata["packages"]).into_iter();
    let mut dependencies = packages.flat_map(|package| {
        let names = list(&package["dependencies"]).into_iter();
        names.map(move |dependency| (package["name"].clone(), dependency["name"].clone()))
    });
    let banned = |name: &Value| BANNED_IN_OURS.iter().any(|banned| name == banned);
    let (package, dependency) = dependencies.find(|(_, dependency)| banned(dependency))?;
    Some(format!("{package} depends on {dependency}"))
}

/// Fails if a plugin links a banned crate, with the path that leads to it.
fn check_plugins() -> Result<()> {
    let target = musl_target()?;
    for plugin in PLUGINS {
        let package = ["--package", plugin.package];
        let tree = ["tree", "--target", target, "--edges", "normal"];
        let listed = output(cargo(&tree).args(package).args(["--prefix", "none"]))?;
        if let Some(banned) = banned_in_plugin(&listed) {
            let path = output(cargo(&tree).args(package).args(["--invert", banned]))?;
            bail!("{} must not link {banned}:\n{path}", plugin.bin);
        }
    }
    Ok(())
}

fn banned_in_plugin(listed: &str) -> Option<&str> {
    let mut names = listed
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    names.find(|name| {
        let family = name.split(['-', '_']).next().unwrap_or(name);
        BANNED_IN_PLUGINS.contains(&family)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn our_crates_must_not_use_once_cell() {
        let uses = |name: &str| {
            let dependencies = json!([{ "name": name }]);
            json!({ "packages": [{ "name": "ours", "dependencies": dependencies }] })
        };
        assert_eq!(banned_in_ours(&uses("serde")), None);
        assert!(banned_in_ours(&uses("once_cell")).is_some());
    }

    #[test]
    fn a_plugin_links_nothing_of_a_banned_family() {
        let banned = |name: &str| {
            let listed = format!("plugin v0.1.0 (/x)\n{name} v1.0.0\n");
            banned_in_plugin(&listed).is_some()
        };
        assert!(banned("tokio") && banned("tracing-core") && banned("clap_builder"));
        assert!(!banned("serde") && !banned("clapper"));
    }
}
