//! Debian packages, unpacked into the cache: their files and scripts don't touch the machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use lab::tools::{DebianTree, cache_dir};

use super::debian::{apt_get, update_lists};
use super::{fresh_dir, remove_dir};
use crate::run::{run, run_patiently, say};

/// What apt has downloaded for an installation.
const APT_CACHE: &str = "/var/cache/apt/archives";

/// Unpacks a tree that the cache lacks. The caller holds the cache's lock.
pub(super) fn unpack_missing(start: Instant, tree: &DebianTree) -> Result<()> {
    let missing = tree.missing();
    if missing.is_empty() {
        return Ok(());
    }
    let what = format!("{} {}", tree.name, tree.version);
    say(start, &format!("{what}: missing {}", missing.join(" ")));

    let (fresh, dir) = (fresh_dir(&cache_dir(), tree.name)?, tree.dir());
    let (archives, root) = (fresh.join("archives"), fresh.join("root"));
    fs::create_dir(&root).with_context(|| format!("make {}", root.display()))?;
    fetch(start, tree, &archives).with_context(|| {
        format!("fetch {what}, which is Debian 12's: apt needs a source and a list of it")
    })?;
    for archive in files(&archives)? {
        run(Command::new("dpkg-deb")
            .arg("--extract")
            .args([&archive, &root]))?;
    }
    merge_lib(&root)?;

    // Here if the list of packages has grown since.
    if dir.exists() {
        remove_dir(&dir)?;
    }
    let parent = dir.parent().context("a tree has a parent directory")?;
    fs::create_dir_all(parent).with_context(|| format!("make {}", parent.display()))?;
    fs::rename(&root, &dir).with_context(|| format!("put {what} into {}", dir.display()))?;
    remove_dir(&fresh)?;

    let missing = tree.missing();
    if !missing.is_empty() {
        bail!("{} lacks {} still", dir.display(), missing.join(" "));
    }
    Ok(())
}

/// Downloads a tree's packages. Neither root nor new lists are needed, if the lists there are do.
fn fetch(start: Instant, tree: &DebianTree, into: &Path) -> Result<()> {
    // apt has said why; any other reason comes again.
    if download(start, tree, into).is_err() {
        say(
            start,
            "apt-get download: trying again with new package lists",
        );
        update_lists(start);
        // What came of the first try may be of other versions.
        remove_dir(into)?;
        download(start, tree, into)?;
    }
    Ok(())
}

fn download(start: Instant, tree: &DebianTree, into: &Path) -> Result<()> {
    fs::create_dir(into).with_context(|| format!("make {}", into.display()))?;
    take_from_apt_cache(tree, into)?;
    run_patiently(start, "apt-get download", || apt_download(tree, into))
}

/// Copies what apt has already, because its `download` would fetch it nonetheless. It takes a file
/// of the right name and size, as it does in its own cache.
fn take_from_apt_cache(tree: &DebianTree, into: &Path) -> Result<()> {
    let listed = apt_download(tree, into)
        .arg("--print-uris")
        .output()
        .context("start apt-get")?;
    // If it failed, the download will too, and say why.
    for name in file_names(&String::from_utf8_lossy(&listed.stdout)) {
        let cached = Path::new(APT_CACHE).join(name);
        if cached.is_file() {
            fs::copy(&cached, into.join(name))
                .with_context(|| format!("copy {}", cached.display()))?;
        }
    }
    Ok(())
}

/// The second word of each line is the file's name; the first is where it comes from.
fn file_names(listed: &str) -> impl Iterator<Item = &str> {
    let lines = listed.lines().filter(|line| line.starts_with('\''));
    lines.filter_map(|line| line.split(' ').nth(1))
}

fn apt_download(tree: &DebianTree, into: &Path) -> Command {
    // The cache is its owner's, and apt's own user can't write into it.
    let mut command = apt_get(&["-oAPT::Sandbox::User=root", "download"]);
    command
        .arg(format!("{}={}*", tree.name, tree.version))
        .args(tree.packages)
        .current_dir(into);
    command
}

/// Moves libraries from `lib` to where Debian 12 has them: its `/lib` is a link to `/usr/lib`.
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
    fn apt_tells_the_names_of_files() {
        let listed = "'http://deb.debian.org/debian/pool/main/s/shadow/libsubid4_4.13_amd64.deb' \
                      libsubid4_1%3a4.13_amd64.deb 212380 SHA256:00\n\
                      N: something else\n";
        let names: Vec<_> = file_names(listed).collect();
        assert_eq!(names, ["libsubid4_1%3a4.13_amd64.deb"]);
    }
}
