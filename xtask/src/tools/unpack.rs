//! Debian packages, unpacked into the cache instead of being installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use lab::tools::{DebianTree, cache_dir};

use super::debian::{apt_get, update_lists};
use super::{create_work_dir, remove_dir};
use crate::process::{progress, run, run_with_retry};

/// Where apt puts what it downloads for an installation.
const APT_CACHE: &str = "/var/cache/apt/archives";

/// Unpacks a tree that the cache lacks. The caller holds the cache's lock.
pub(super) fn unpack_missing(start: Instant, tree: &DebianTree) -> Result<()> {
    let missing = tree.missing();
    if missing.is_empty() {
        return Ok(());
    }
    let what = format!("{} {}", tree.name, tree.version);
    progress(start, &format!("{what}: missing {}", missing.join(" ")));

    let (work, dir) = (create_work_dir(&cache_dir(), tree.name)?, tree.dir());
    let (archives, root) = (work.join("archives"), work.join("root"));
    fs::create_dir(&root).with_context(|| format!("create {}", root.display()))?;
    fetch(start, tree, &archives).with_context(|| {
        format!("fetch {what}, which is Debian 12's: apt needs a source and a list of it")
    })?;
    for archive in files(&archives)? {
        run(Command::new("dpkg-deb")
            .arg("--extract")
            .args([&archive, &root]))?;
    }
    merge_lib(&root)?;

    // It exists if the list of packages has grown since.
    if dir.exists() {
        remove_dir(&dir)?;
    }
    let parent = dir.parent().context("a tree has a parent directory")?;
    fs::create_dir_all(parent).with_context(|| format!("create {}", parent.display()))?;
    fs::rename(&root, &dir).with_context(|| format!("put {what} into {}", dir.display()))?;
    remove_dir(&work)?;

    let missing = tree.missing();
    if !missing.is_empty() {
        bail!("{} still lacks {}", dir.display(), missing.join(" "));
    }
    Ok(())
}

/// Downloads a tree's packages; updates the package lists only if they are too old for that.
fn fetch(start: Instant, tree: &DebianTree, into: &Path) -> Result<()> {
    // apt has printed why.
    if download(start, tree, into).is_err() {
        progress(start, "apt-get download: retrying with new package lists");
        update_lists(start);
        // What the first attempt downloaded may be of other versions.
        remove_dir(into)?;
        download(start, tree, into)?;
    }
    Ok(())
}

fn download(start: Instant, tree: &DebianTree, into: &Path) -> Result<()> {
    fs::create_dir(into).with_context(|| format!("create {}", into.display()))?;
    copy_from_apt_cache(tree, into)?;
    run_with_retry(start, "apt-get download", || apt_download(tree, into))
}

/// Copies what apt's cache has, because `apt-get download` ignores that cache. It accepts a file of
/// the right name and size.
fn copy_from_apt_cache(tree: &DebianTree, into: &Path) -> Result<()> {
    let listed = apt_download(tree, into)
        .arg("--print-uris")
        .output()
        .context("start apt-get")?;
    // If this failed, the download will too, with a message.
    for name in file_names(&String::from_utf8_lossy(&listed.stdout)) {
        let cached = Path::new(APT_CACHE).join(name);
        if cached.is_file() {
            fs::copy(&cached, into.join(name))
                .with_context(|| format!("copy {}", cached.display()))?;
        }
    }
    Ok(())
}

/// Each line has a quoted URL, then the file name.
fn file_names(listed: &str) -> impl Iterator<Item = &str> {
    let lines = listed.lines().filter(|line| line.starts_with('\''));
    lines.filter_map(|line| line.split(' ').nth(1))
}

fn apt_download(tree: &DebianTree, into: &Path) -> Command {
    // apt's own user can't write into the cache.
    let mut command = apt_get(&["-oAPT::Sandbox::User=root", "download"]);
    command
        .arg(format!("{}={}*", tree.name, tree.version))
        .args(tree.packages)
        .current_dir(into);
    command
}

/// Moves `lib` to `usr/lib`, where Debian 12 has it (<https://wiki.debian.org/UsrMerge>).
fn merge_lib(root: &Path) -> Result<()> {
    let lib = root.join("lib");
    if lib.exists() {
        let merge = ["--archive", "--no-target-directory"];
        run(Command::new("cp")
            .args(merge)
            .args([&lib, &root.join("usr/lib")]))?;
        remove_dir(&lib)?;
    }
    Ok(())
}

fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let list = || -> std::io::Result<Vec<PathBuf>> {
        let entries = fs::read_dir(dir)?;
        entries.map(|entry| Ok(entry?.path())).collect()
    };
    list().with_context(|| format!("list {}", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_read_from_print_uris() {
        let listed = "'http://deb.debian.org/debian/pool/main/s/shadow/libsubid4_4.13_amd64.deb' \
                      libsubid4_1%3a4.13_amd64.deb 212380 SHA256:00\n\
                      N: something else\n";
        let names: Vec<_> = file_names(listed).collect();
        assert_eq!(names, ["libsubid4_1%3a4.13_amd64.deb"]);
    }
}
