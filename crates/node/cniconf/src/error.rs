//! Errors and their remedies.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::{fmt, fs};

use node_core::error::display_chain;

#[derive(Debug, thiserror::Error)]
pub enum CniConfError {
    /// An invalid setting.
    #[error("{key}{}{value} {trouble}", if value.is_empty() { "" } else { " " })]
    Setting {
        key: &'static str,
        /// Empty if it must not be shown.
        value: String,
        trouble: String,
    },
    #[error(
        "the CNI configuration that follows from these settings is refused, so it is not written"
    )]
    Refused(#[source] cni::Error),
    #[error(
        "{document} would be read as something else than was meant: {trouble}; it is not written"
    )]
    Misread {
        document: &'static str,
        trouble: String,
    },
    #[error("{action} {} ({remedy})", path.display())]
    File {
        action: &'static str,
        path: PathBuf,
        remedy: String,
        #[source]
        source: io::Error,
    },
    /// Another program keeps writing a configuration with new contents.
    #[error(
        "{} has been set aside {times} times: stop whoever writes it, or set cni.exclusive to false",
        path.display()
    )]
    Persistent { path: PathBuf, times: u32 },
    #[error("the subnets in {} can't be restored", path.display())]
    Kept {
        path: PathBuf,
        #[source]
        source: api::SubnetEnvError,
    },
    #[error("{}", .0.iter().map(Self::explained).collect::<Vec<_>>().join("; "))]
    Several(Vec<CniConfError>),
}

impl CniConfError {
    /// One line with all causes.
    pub fn explained(&self) -> String {
        display_chain(self)
    }

    pub(super) fn all(mut errors: Vec<Self>) -> Result<(), Self> {
        match errors.len() {
            0 => Ok(()),
            1 => Err(errors.remove(0)),
            _ => Err(Self::Several(errors)),
        }
    }

    pub(super) fn setting(
        key: &'static str,
        value: impl fmt::Display,
        trouble: impl Into<String>,
    ) -> Self {
        Self::Setting {
            key,
            value: format!("{value}"),
            trouble: trouble.into(),
        }
    }

    pub(super) fn file(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::File {
            action,
            path: path.to_owned(),
            remedy: remedy(path, &source),
            source,
        }
    }
}

fn remedy(path: &Path, error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::ReadOnlyFilesystem => "mount its file system read-write".to_owned(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "free space and inodes on its file system".to_owned()
        }
        ErrorKind::PermissionDenied => "run as root; look for an immutable attribute with lsattr, \
                                        and for a security module's refusal in the kernel's log"
            .to_owned(),
        ErrorKind::IsADirectory => "remove the directory that is in its place".to_owned(),
        ErrorKind::ResourceBusy => {
            "it is a mount point: mount its directory instead of the file".to_owned()
        }
        _ => obstacle(path).unwrap_or_else(|| "it is tried again".to_owned()),
    }
}

/// The first parent of `path` that is not a directory.
fn obstacle(path: &Path) -> Option<String> {
    let above: Vec<&Path> = path.ancestors().skip(1).collect();
    let in_the_way = above.into_iter().rev().find(|dir| {
        let is_there = dir.symlink_metadata().is_ok();
        is_there && !dir.is_dir()
    })?;
    let shown = in_the_way.display();
    Some(match fs::read_link(in_the_way) {
        Ok(target) => format!(
            "{shown} is a link to {}, which is no directory: make it one, or remove the link",
            target.display()
        ),
        Err(_) => format!("{shown} is no directory: remove it, or set cni.confDir to another one"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_a_remedy_and_a_cause() {
        let full = io::Error::from(ErrorKind::StorageFull);
        let error = CniConfError::file("write", Path::new("/etc/x"), full);
        assert_eq!(
            error.explained(),
            "write /etc/x (free space and inodes on its file system): no storage space"
        );
        let busy = CniConfError::file("write", Path::new("/y"), ErrorKind::ResourceBusy.into());
        let both = CniConfError::all(vec![error, busy]).unwrap_err();
        let words = both.explained();
        assert!(
            words.contains("/etc/x (free") && words.contains("; write /y (it is a mount point")
        );
    }

    #[test]
    fn a_parent_that_is_not_a_directory_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        fs::File::create(&file).unwrap();
        std::os::unix::fs::symlink("/nowhere/at/all", &link).unwrap();
        let words = |path: PathBuf| obstacle(&path).unwrap_or_default();
        assert!(words(file.join("net.d/x")).contains("file is no directory"));
        assert!(words(link.join("x")).contains("link to /nowhere/at/all"));
        assert_eq!(words(dir.path().join("x/y")), "");
    }
}
