//! Access to a node's files.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};

use crate::node::Node;

impl Node {
    /// The path by which this process sees a path of the node. Absolute symlinks such as `/var/run` are
    /// resolved within the node.
    pub fn path(&self, inside: impl AsRef<Path>) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder_pid()));
        let mut path = root.clone();
        for component in inside.as_ref().components() {
            match component {
                Component::Normal(name) => path.push(name),
                Component::ParentDir if path != root => {
                    path.pop();
                    continue;
                }
                _ => continue,
            }
            // The kernel would resolve an absolute symlink from the host's root.
            if let Ok(target) = fs::read_link(&path)
                && target.is_absolute()
            {
                path = self.path(target);
            }
        }
        path
    }

    /// Creates missing directories.
    pub fn write(&self, inside: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> Result<()> {
        let path = self.path(&inside);
        let write = || -> io::Result<()> {
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            put(&path, contents.as_ref())
        };
        write().with_context(|| format!("write {} on {}", inside.as_ref().display(), self.name()))
    }

    pub fn read(&self, inside: impl AsRef<Path>) -> Result<String> {
        fs::read_to_string(self.path(&inside))
            .with_context(|| format!("read {} on {}", inside.as_ref().display(), self.name()))
    }

    pub fn has(&self, inside: impl AsRef<Path>) -> bool {
        self.path(inside).symlink_metadata().is_ok()
    }
}

/// Writes a host file without fsync.
pub(crate) fn put(path: &Path, contents: impl AsRef<[u8]>) -> io::Result<()> {
    File::create(path)?.write_all(contents.as_ref())
}
