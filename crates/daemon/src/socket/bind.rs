//! Puts the socket in its place.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// So many clients wait in the kernel, which may allow less: `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Why nobody can reach us.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Its directory can't be made.
    #[error("make the directory {}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Something else has its name.
    #[error("{} is there and no socket: remove it", path.display())]
    Foreign {
        /// The path.
        path: PathBuf,
    },
    /// The kernel refuses.
    #[error("listen at {}", path.display())]
    Listen {
        /// The path.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Listens at a path, in place of whoever did so before: one daemon per node is another module's
/// affair.
pub(super) fn bind(path: &Path) -> Result<(UnixListener, Place), SocketError> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    ensure_dir(dir).map_err(|source| SocketError::Directory {
        path: dir.to_owned(),
        source,
    })?;
    let found = fs::symlink_metadata(path);
    if found.is_ok_and(|found| !found.file_type().is_socket()) {
        return Err(SocketError::Foreign {
            path: path.to_owned(),
        });
    }
    place(path).map_err(|source| SocketError::Listen {
        path: path.to_owned(),
        source,
    })
}

/// Where a socket was put.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    identity: (u64, u64),
}

impl Place {
    /// Whether whoever connects still comes to that socket.
    pub(super) fn is_taken(&self) -> bool {
        identity(&self.path).is_ok_and(|found| found == self.identity)
    }
}

/// Makes a directory that all may look into; one that is there is left as it is.
fn ensure_dir(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(dir)?;
    // The umask may have taken some away.
    fs::set_permissions(dir, Permissions::from_mode(0o755))
}

/// Under another name first: in its own place a socket is ours alone from the first moment on, and
/// whoever connects meanwhile finds the old one or the new one.
fn place(path: &Path) -> io::Result<(UnixListener, Place)> {
    let fresh = path.with_added_extension("new");
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&fresh)?;
    fs::set_permissions(&fresh, Permissions::from_mode(0o600))?;
    rustix::net::listen(&listener, BACKLOG)?;
    listener.set_nonblocking(true)?;
    let identity = identity(&fresh)?;
    fs::rename(&fresh, path)?;
    let path = path.to_owned();
    Ok((listener, Place { path, identity }))
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use tempfile::TempDir;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_socket_is_for_its_owner_alone_in_a_directory_for_all() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("run/s");
        let (listener, place) = bind(&path).unwrap();
        assert_eq!((mode(&path), mode(&dir.path().join("run"))), (0o600, 0o755));
        assert!(place.is_taken());
        let _client = UnixStream::connect(&path).unwrap();
        listener.accept().unwrap();
        let names: Vec<_> = fs::read_dir(dir.path().join("run")).unwrap().collect();
        assert_eq!(names.len(), 1, "{names:?}");
    }

    #[test]
    fn a_socket_that_nobody_listens_at_any_more_is_replaced() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("s");
        let (_, old) = bind(&path).unwrap();
        drop(UnixListener::bind(dir.path().join("s.new")).unwrap());
        let (listener, new) = bind(&path).unwrap();
        assert!(!old.is_taken() && new.is_taken());
        let _client = UnixStream::connect(&path).unwrap();
        listener.accept().unwrap();
    }

    #[test]
    fn what_is_no_socket_is_left_alone() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("s");
        fs::File::create(&path).unwrap();
        let error = bind(&path).unwrap_err();
        assert!(error.to_string().ends_with("remove it"), "{error}");
        assert!(path.is_file());
    }

    #[test]
    fn a_directory_that_cannot_be_is_named() {
        let dir = TempDir::new().unwrap();
        fs::File::create(dir.path().join("file")).unwrap();
        let error = bind(&dir.path().join("file/s")).unwrap_err();
        assert!(matches!(error, SocketError::Directory { .. }), "{error:?}");
    }

    #[test]
    fn a_socket_that_somebody_took_away_is_missed() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("s");
        let (_listener, place) = bind(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(!place.is_taken());
    }
}
