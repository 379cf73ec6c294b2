//! Every path in the tables of ARCHITECTURE.md's "If you want to change X, look at Y" exists.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use lab::tools::workspace_dir;

const HEADING: &str = "If you want to change";

pub(super) fn check() -> Result<()> {
    let root = workspace_dir();
    let file = root.join("ARCHITECTURE.md");
    let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    let paths = paths(&text);
    if paths.is_empty() {
        bail!("ARCHITECTURE.md has no table with paths under {HEADING:?}");
    }
    let is_missing = |path: &&str| !exists(&root, path);
    let missing: Vec<&str> = paths.into_iter().filter(is_missing).collect();
    if !missing.is_empty() {
        bail!(
            "ARCHITECTURE.md names paths that do not exist: {}",
            missing.join(", ")
        );
    }
    Ok(())
}

/// What looks like a path among the back-quoted words of the table's second column.
fn paths(text: &str) -> Vec<&str> {
    let section = text
        .split("\n## ")
        .find(|section| section.starts_with(HEADING));
    let rows = section.into_iter().flat_map(str::lines);
    let cells = rows.filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    cells
        .flat_map(|(_, cell)| cell.split('`').skip(1).step_by(2))
        .filter(|word| word.contains('/') || word.contains('.'))
        .filter(|word| !word.contains([' ', '(', '<', '=']))
        .collect()
}

/// Paths are relative to the checkout; `*` stands for any name.
fn exists(root: &Path, path: &str) -> bool {
    let path = path.trim_end_matches('/');
    match path.split_once("/*") {
        None => root.join(path).exists(),
        Some((dir, rest)) => fs::read_dir(root.join(dir)).is_ok_and(|entries| {
            entries.flatten().any(|entry| match rest.strip_prefix('/') {
                Some(rest) => exists(&entry.path(), rest),
                None => entry.file_name().to_string_lossy().ends_with(rest),
            })
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# A\n\n`not/here.rs`\n\n## If you want to change X, look at Y\n\n\
        | X | Y |\n|---|---|\n| a | `xtask/src/main.rs` (`dispatch`), `docs/` |\n\
        | `b.env` | `crates/*/Cargo.toml`; `x = y.z` |\n\n## Other\n\n| c | `d.rs` |\n";

    #[test]
    fn only_paths_of_the_section_are_checked() {
        let expected = ["xtask/src/main.rs", "docs/", "crates/*/Cargo.toml"];
        assert_eq!(paths(TEXT), expected);
    }

    #[test]
    fn a_missing_path_is_reported() {
        let root = workspace_dir();
        assert!(paths(TEXT).into_iter().all(|path| exists(&root, path)));
        for path in ["xtask/src/absent.rs", "crates/*/absent.toml", "absent/*.rs"] {
            assert!(!exists(&root, path), "{path}");
        }
    }
}
