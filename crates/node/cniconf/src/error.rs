//! Why the files are not as they should be, and what a person can do about it.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::{fmt, fs};

use node_core::error::display_chain;

/// Why the CNI configuration is not in its place.
#[derive(Debug, thiserror::Error)]
pub enum CniConfError {
    /// The settings contradict each other, or what the plugins take.
    #[error("{key}{}{value} {trouble}", if value.is_empty() { "" } else { " " })]
    Setting {
        /// A key of the daemon's configuration.
        key: &'static str,
        /// What it says, if that may be shown.
        value: String,
        /// What is wrong with it.
        trouble: String,
    },
    /// The document would be refused by whoever reads it.
    #[error(
        "the CNI configuration that follows from these settings is refused, so it is not written"
    )]
    Refused(#[source] cni::Error),
    /// The document was read back, and says something else than was meant.
    #[error(
        "{document} would be read as something else than was meant: {trouble}; it is not written"
    )]
    Misread {
        /// Which document.
        document: &'static str,
        /// What differs.
        trouble: String,
    },
    /// The file system refuses.
    #[error("{action} {} ({remedy})", path.display())]
    File {
        /// What was attempted.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What to do about it.
        remedy: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Somebody writes a configuration again and again, with other contents each time.
    #[error(
        "{} has been set aside {times} times: stop whoever writes it, or set cni.exclusive to false",
        path.display()
    )]
    Persistent {
        /// The file.
        path: PathBuf,
        /// How often it came back.
        times: u32,
    },
    /// What was kept over the reboot is of no use.
    #[error("the subnets in {} can't be restored", path.display())]
    Kept {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: api::SubnetEnvError,
    },
    /// Several things at once.
    #[error("{}", .0.iter().map(Self::explained).collect::<Vec<_>>().join("; "))]
    Several(Vec<CniConfError>),
}

impl CniConfError {
    /// With all causes, in one line.
    pub fn explained(&self) -> String {
        display_chain(self)
    }

    /// One error of many.
    pub(super) fn all(mut errors: Vec<Self>) -> Result<(), Self> {
        match errors.len() {
            0 => Ok(()),
            1 => Err(errors.remove(0)),
            _ => Err(Self::Several(errors)),
        }
    }

    /// `trouble` goes on after the key and its value.
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

/// What to do about an error of the file system.
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

/// The first thing above `path` that should be a directory and isn't.
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
    fn an_error_is_told_with_its_remedy_and_its_cause() {
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
    fn what_is_in_the_way_is_named() {
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
