//! Licences and banned crates, as listed in `deny.toml`, and the crates that plugins must not link.
//!
//! `deny.toml` is cargo-deny's format, so `cargo deny check` works too. It is not run here because it
//! takes longer to build than headcni: `docs/adr/0025-licences-without-cargo-deny.md`.

use std::fs;

use anyhow::{Context, Result, bail};
use lab::tools::workspace_dir;
use serde::Deserialize;
use serde_json::Value;

use crate::cargo::{cargo, metadata};
use crate::dist::{PLUGINS, musl_target};
use crate::process::output;

/// Families of crates that plugins must not link: a plugin lives for two milliseconds.
const BANNED_IN_PLUGINS: &[&str] = &["clap", "tokio", "tracing"];

/// The standard library has replacements; other crates may still use them.
const BANNED_IN_OURS: &[&str] = &["lazy_static", "once_cell"];

/// The part of `deny.toml` that is checked here.
#[derive(Deserialize)]
struct Rules {
    graph: Graph,
    licenses: Licenses,
    bans: Bans,
}

#[derive(Deserialize)]
struct Graph {
    targets: Vec<String>,
}

#[derive(Deserialize)]
struct Licenses {
    allow: Vec<String>,
}

#[derive(Deserialize)]
struct Bans {
    deny: Vec<Ban>,
}

#[derive(Deserialize)]
struct Ban {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
}

pub(super) fn check() -> Result<()> {
    let file = workspace_dir().join("deny.toml");
    let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    let rules: Rules = toml::from_str(&text).context("parse deny.toml")?;
    let errors = errors(&rules, &metadata(&rules.graph.targets)?)?;
    if !errors.is_empty() {
        bail!("dependencies:\n  {}", errors.join("\n  "));
    }
    check_plugins()
}

fn errors(rules: &Rules, metadata: &Value) -> Result<Vec<String>> {
    let mut errors = Vec::new();
    let packages = metadata["packages"].as_array();
    for package in packages.context("cargo metadata has no packages")? {
        let name = package["name"].as_str().context("a package has no name")?;
        // Workspace members have no source.
        if package["source"].is_null() {
            let direct = package["dependencies"].as_array().into_iter().flatten();
            let direct = direct.filter_map(|dependency| dependency["name"].as_str());
            let banned = direct.filter(|dependency| BANNED_IN_OURS.contains(dependency));
            errors.extend(banned.map(|banned| format!("{name} depends on {banned}")));
            continue;
        }
        if let Some(ban) = rules.bans.deny.iter().find(|ban| ban.name == name) {
            let reason = &ban.reason;
            errors.push(format!(
                "{name} is banned ({reason}): see \"cargo tree --invert {name}\""
            ));
        }
        let licence = package["license"].as_str().unwrap_or_default();
        match is_allowed(licence, &rules.licenses.allow) {
            Ok(true) => {}
            Ok(false) => errors.push(format!("{name}: licence {licence:?} is not allowed")),
            Err(error) => errors.push(format!("{name}: licence {licence:?}: {error}")),
        }
    }
    Ok(errors)
}

/// Whether the allowed licences satisfy an SPDX expression.
fn is_allowed(expression: &str, allowed: &[String]) -> Result<bool> {
    // Lax: old manifests write "MIT/Apache-2.0".
    let expression = spdx::Expression::parse_mode(expression, spdx::ParseMode::LAX)?;
    Ok(expression.evaluate(|licence| {
        let id = licence.license.id();
        id.is_some_and(|id| allowed.iter().any(|allowed| allowed == id.name))
    }))
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

    fn errors_of(package: &Value) -> Vec<String> {
        let rules = "graph.targets = []\nlicenses.allow = ['MIT', 'Apache-2.0']\n\
                     bans.deny = [{ crate = 'openssl', reason = 'C' }]";
        errors(
            &toml::from_str(rules).unwrap(),
            &json!({ "packages": [package] }),
        )
        .unwrap()
    }

    #[test]
    fn a_licence_must_be_allowed() {
        let count = |licence: Value| {
            errors_of(&json!({ "name": "a", "source": "registry", "license": licence })).len()
        };
        for allowed in [
            "MIT",
            "GPL-3.0-only OR MIT",
            "Unlicense/MIT",
            "(MIT OR ISC) AND Apache-2.0",
        ] {
            assert_eq!(count(json!(allowed)), 0, "{allowed}");
        }
        for refused in ["GPL-3.0-only", "MIT AND OpenSSL", "", "MIT OR", "nonsense"] {
            assert_eq!(count(json!(refused)), 1, "{refused}");
        }
        assert_eq!(count(Value::Null), 1);
    }

    #[test]
    fn a_banned_crate_is_refused() {
        let openssl = json!({ "name": "openssl", "source": "registry", "license": "MIT" });
        assert_eq!(errors_of(&openssl).len(), 1);
    }

    #[test]
    fn our_crates_must_not_use_once_cell_but_others_may() {
        let theirs = json!({ "name": "once_cell", "source": "registry", "license": "MIT" });
        assert!(errors_of(&theirs).is_empty());
        let uses = |name: &str| json!({ "name": "ours", "source": null, "dependencies": [{ "name": name }] });
        assert!(errors_of(&uses("serde")).is_empty());
        assert_eq!(errors_of(&uses("once_cell")), ["ours depends on once_cell"]);
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
