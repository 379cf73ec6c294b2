//! The process that listens on a unix socket.

use std::io::ErrorKind;
use std::path::Path;

use tokio::net::UnixStream;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listener {
    /// `None` if the process is in another PID namespace.
    pub(super) pid: Option<u32>,
}

impl Listener {
    /// Connects without sending anything.
    pub(super) async fn on(socket: &Path) -> Option<Self> {
        let pid = match UnixStream::connect(socket).await {
            Ok(stream) => stream.peer_cred().ok().and_then(|peer| peer.pid()),
            // The accept queue is full.
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            // No socket, or a stale one.
            Err(_) => return None,
        };
        let pid = pid.and_then(|pid| u32::try_from(pid).ok());
        Some(Self {
            pid: pid.filter(|pid| *pid != 0),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn the_listener_is_found_and_a_stale_socket_has_none() {
        let files = tempfile::tempdir().unwrap();
        let socket = files.path().join("ts.sock");
        assert_eq!(Listener::on(&socket).await, None);
        let listener = UnixListener::bind(&socket).unwrap();
        let pid = Some(std::process::id());
        assert_eq!(Listener::on(&socket).await, Some(Listener { pid }));
        drop(listener);
        assert!(socket.exists());
        assert_eq!(Listener::on(&socket).await, None);
    }
}
