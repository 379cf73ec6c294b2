//! The Unix socket of the API: creating its file, and accepting connections.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::serve::Listener;
use rustix::io::Errno;
use tokio::net::UnixStream;
use tokio::net::unix::SocketAddr;
use tokio::time::{sleep, timeout};

use node_core::conditions::{Condition, Conditions};

/// The kernel may allow less: `net.core.somaxconn`.
const BACKLOG: i32 = 4096;
/// The wait after a failed accept: most likely a limit on open files, which stays for a while.
const RETRY: Duration = Duration::from_millis(100);
/// After a failure, `SocketOpen` is `True` again when no accept has failed for this long.
const RECOVERY: Duration = Duration::from_secs(5);

/// Why the API is not served.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    #[error("create directory {}", path.display())]
    Directory {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} exists and is not a socket: remove it", path.display())]
    NotASocket { path: PathBuf },
    #[error("listen on {}", path.display())]
    Listen {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Listens on `path`, and replaces the socket of an earlier daemon. A lock ensures that there is
/// only one daemon.
pub(super) fn bind(path: &Path) -> Result<(UnixListener, SocketFile), SocketError> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    ensure_dir(dir).map_err(|source| SocketError::Directory {
        path: dir.to_owned(),
        source,
    })?;
    let found = fs::symlink_metadata(path);
    if found.is_ok_and(|found| !found.file_type().is_socket()) {
        return Err(SocketError::NotASocket {
            path: path.to_owned(),
        });
    }
    create(path).map_err(|source| SocketError::Listen {
        path: path.to_owned(),
        source,
    })
}

/// The file of a socket.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl SocketFile {
    /// Whether the path still leads to this socket.
    pub(super) fn is_current(&self) -> bool {
        identity(&self.path).is_ok_and(|found| found == self.identity)
    }
}

fn ensure_dir(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(dir)?;
    // Independent of the umask.
    fs::set_permissions(dir, Permissions::from_mode(0o755))
}

/// Creates the socket under a temporary name: once it has its own, its mode is right, and clients
/// find either the old socket or the new one.
fn create(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    let temporary = path.with_added_extension("new");
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&temporary)?;
    fs::set_permissions(&temporary, Permissions::from_mode(0o600))?;
    rustix::net::listen(&listener, BACKLOG)?;
    listener.set_nonblocking(true)?;
    let identity = identity(&temporary)?;
    fs::rename(&temporary, path)?;
    let path = path.to_owned();
    Ok((listener, SocketFile { path, identity }))
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

/// Accepts connections, and reports in `SocketOpen` if the kernel refuses to.
pub(super) struct ApiListener {
    inner: tokio::net::UnixListener,
    path: PathBuf,
    conditions: Arc<Conditions>,
    is_failing: bool,
}

impl ApiListener {
    pub(super) fn new(
        listener: UnixListener,
        path: PathBuf,
        conditions: Arc<Conditions>,
    ) -> io::Result<Self> {
        Ok(Self {
            inner: tokio::net::UnixListener::from_std(listener)?,
            path,
            conditions,
            is_failing: false,
        })
    }

    /// What `SocketOpen` reports while connections are accepted.
    pub(super) fn message(&self) -> String {
        format!("listening on {}", self.path.display())
    }
}

impl Listener for ApiListener {
    type Io = UnixStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (UnixStream, SocketAddr) {
        loop {
            let accepted = if self.is_failing {
                timeout(RECOVERY, self.inner.accept()).await.ok()
            } else {
                Some(self.inner.accept().await)
            };
            match accepted {
                Some(Ok(accepted)) => return accepted,
                Some(Err(error)) => {
                    self.is_failing = true;
                    let remedy = remedy(&error);
                    let message = format!("accept a connection: {error} ({remedy})");
                    self.conditions.fails(Condition::SocketOpen, message);
                    sleep(RETRY).await;
                }
                None => {
                    self.is_failing = false;
                    self.conditions.holds(Condition::SocketOpen, self.message());
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }
}

fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MFILE) => "raise LimitNOFILE of the unit headcni-daemon.service",
        Some(Errno::NFILE) => "too many open files on this node: raise the sysctl fs.file-max",
        Some(Errno::NOBUFS | Errno::NOMEM) => "the node is out of memory",
        _ => "retrying",
    }
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
    fn the_socket_has_mode_0600_in_a_directory_of_mode_0755() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("run/s");
        let (listener, file) = bind(&path).unwrap();
        assert_eq!((mode(&path), mode(&dir.path().join("run"))), (0o600, 0o755));
        assert!(file.is_current());
        let _client = UnixStream::connect(&path).unwrap();
        listener.accept().unwrap();
        let names: Vec<_> = fs::read_dir(dir.path().join("run")).unwrap().collect();
        assert_eq!(names.len(), 1, "{names:?}");
    }

    #[test]
    fn a_stale_socket_is_replaced() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("s");
        let (_, old) = bind(&path).unwrap();
        drop(UnixListener::bind(dir.path().join("s.new")).unwrap());
        let (listener, new) = bind(&path).unwrap();
        assert!(!old.is_current() && new.is_current());
        let _client = UnixStream::connect(&path).unwrap();
        listener.accept().unwrap();
    }

    #[test]
    fn a_file_that_is_not_a_socket_is_left_alone() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("s");
        fs::File::create(&path).unwrap();
        let error = bind(&path).unwrap_err();
        assert!(error.to_string().ends_with("remove it"), "{error}");
        assert!(path.is_file());
    }

    #[test]
    fn a_directory_that_cannot_be_created_is_named() {
        let dir = TempDir::new().unwrap();
        fs::File::create(dir.path().join("file")).unwrap();
        let error = bind(&dir.path().join("file/s")).unwrap_err();
        assert!(matches!(error, SocketError::Directory { .. }), "{error:?}");
    }

    #[test]
    fn a_removed_socket_file_is_noticed() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("s");
        let (_listener, file) = bind(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(!file.is_current());
    }
}
