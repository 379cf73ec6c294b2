//! Dependencies under licences that fit ours, and none of the crates that we decided against.
//!
//! `deny.toml` says the same to cargo-deny, which takes minutes to build and is therefore not
//! part of the quick loop.

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::spdx;
use crate::cargo;

const ALLOWED: &[&str] = &[
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Zlib",
];

/// Crates that nothing of ours may pull in.
const BANNED: &[&str] = &[
    "chrono",
    "native-tls",
    "openssl",
    "openssl-sys",
    "serde_yaml",
];

/// What we build for. What others need is not ours to answer for.
const TARGETS: &[&str] = &[
    "x86_64-unknown-linux-gnu",
    "x86_64-unknown-linux-musl",
    "aarch64-unknown-linux-musl",
    "riscv64gc-unknown-linux-musl",
];

/// Crates that others may use, but we have the standard library's word for.
const BANNED_IN_OURS: &[&str] = &["lazy_static", "once_cell"];

/// Fails with the list of all that is wrong.
pub(super) fn check() -> Result<()> {
    let faults = faults(&cargo::metadata_for(TARGETS)?)?;
    if !faults.is_empty() {
        bail!("dependencies:\n  {}", faults.join("\n  "));
    }
    Ok(())
}

fn faults(metadata: &Value) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for package in metadata["packages"]
        .as_array()
        .context("metadata has no packages")?
    {
        let name = package["name"].as_str().context("a package has no name")?;
        // What lies in the workspace is ours and has no source.
        if package["source"].is_null() {
            let ours = package["dependencies"].as_array().into_iter().flatten();
            let ours = ours.filter_map(|dependency| dependency["name"].as_str());
            let banned = ours.filter(|dependency| BANNED_IN_OURS.contains(dependency));
            faults.extend(banned.map(|banned| format!("{name} uses {banned} itself")));
            continue;
        }
        if BANNED.contains(&name) {
            faults.push(format!(
                "{name} is banned: see \"cargo tree --invert {name}\""
            ));
        }
        let licence = package["license"].as_str().unwrap_or_default();
        match spdx::is_satisfied(licence, ALLOWED) {
            Ok(true) => {}
            Ok(false) => faults.push(format!("{name}: licence {licence:?} is not allowed")),
            Err(error) => faults.push(format!("{name}: licence {licence:?}: {error}")),
        }
    }
    Ok(faults)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn package(name: &str, licence: &Value) -> Value {
        json!({ "packages": [{ "name": name, "source": "registry", "license": licence }] })
    }

    #[test]
    fn a_package_without_a_licence_is_refused() {
        assert_eq!(
            faults(&package("good", &json!("MIT OR Apache-2.0"))).unwrap(),
            [""; 0]
        );
        assert_eq!(faults(&package("bare", &Value::Null)).unwrap().len(), 1);
    }

    #[test]
    fn a_banned_package_is_refused_whatever_its_licence() {
        assert_eq!(faults(&package("openssl", &json!("MIT"))).unwrap().len(), 1);
    }

    #[test]
    fn once_cell_is_for_others() {
        let ours = |uses: &str| {
            json!({ "packages": [{
                "name": "ours", "source": null, "dependencies": [{ "name": uses }],
            }]})
        };
        assert_eq!(
            faults(&package("once_cell", &json!("MIT"))).unwrap(),
            [""; 0]
        );
        assert_eq!(faults(&ours("serde")).unwrap(), [""; 0]);
        assert_eq!(faults(&ours("once_cell")).unwrap().len(), 1);
    }

    #[test]
    fn deny_toml_says_the_same() {
        let text = include_str!("../../../deny.toml");
        let list = |start: &str| -> &str {
            let list = text
                .split(start)
                .nth(1)
                .and_then(|rest| rest.split("\n]").next());
            list.unwrap()
        };
        let quoted = |rest: &'static str| rest.split('"').nth(1);
        let allowed: Vec<&str> = list("\nallow = [").lines().filter_map(quoted).collect();
        let banned: Vec<&str> = list("\ndeny = [").lines().filter_map(quoted).collect();
        assert_eq!((&allowed[..], &banned[..]), (ALLOWED, BANNED));
        let targets: Vec<&str> = list("\ntargets = [").lines().filter_map(quoted).collect();
        assert_eq!(targets, TARGETS);
    }
}
