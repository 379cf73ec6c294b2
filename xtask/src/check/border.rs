//! Plugins live for a millisecond, so they link no runtime, no argument parser and no tracing.

use anyhow::{Result, bail};

use crate::cargo::cargo;
use crate::dist::{PLUGINS, musl_target};
use crate::run::output;

/// Families of crates: `tokio` stands for `tokio-util` too.
const KEPT_OUT: &[&str] = &["clap", "tokio", "tracing"];

/// Fails if a plugin links one of them, with the path that pulls it in.
pub(super) fn check() -> Result<()> {
    let target = musl_target()?;
    for plugin in PLUGINS {
        let tree = [
            "tree",
            "--target",
            target,
            "--edges",
            "normal",
            "--package",
            plugin.package,
        ];
        let listed = output(cargo(&tree).args(["--prefix", "none"]))?;
        if let Some(intruder) = intruder(&listed) {
            let path = output(cargo(&tree).args(["--invert", intruder]))?;
            bail!(
                "{} links {intruder}, and plugins may not:\n{path}",
                plugin.bin
            );
        }
    }
    Ok(())
}

fn intruder(listed: &str) -> Option<&str> {
    listed
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .find(|name| {
            let family = name.split(['-', '_']).next().unwrap_or(name);
            KEPT_OUT.contains(&family)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_known_by_its_first_name() {
        assert_eq!(intruder("plugin v0.1.0 (/x)\nserde v1.0.0\n"), None);
        assert_eq!(
            intruder("plugin v0.1.0 (/x)\ntokio v1.0.0\n"),
            Some("tokio")
        );
        assert_eq!(
            intruder("cni v0.1.0\ntracing-core v0.1.0\n"),
            Some("tracing-core")
        );
        assert_eq!(
            intruder("cni v0.1.0\nclap_builder v4.0.0\n"),
            Some("clap_builder")
        );
        assert_eq!(intruder("clapper v1.0.0\n"), None);
    }
}
