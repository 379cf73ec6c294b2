//! Who listens at a socket, whatever it is.

use std::io::ErrorKind;
use std::path::Path;

use tokio::net::UnixStream;

/// A process that listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listener {
    /// Its number, unless it is out of our sight.
    pub(super) pid: Option<u32>,
}

impl Listener {
    /// The one at a socket, if there is one. Nothing is said to it, and it is not waited for.
    pub(super) async fn at(socket: &Path) -> Option<Self> {
        let pid = match UnixStream::connect(socket).await {
            Ok(stream) => stream.peer_cred().ok().and_then(|peer| peer.pid()),
            // It has so many callers that it takes no more.
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            // There is nobody, or just what a killed one has left.
            Err(_) => return None,
        };
        // In other namespaces of processes it has no number.
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
    async fn who_listens_is_known_and_what_is_left_of_one_is_nobody() {
        let files = tempfile::tempdir().unwrap();
        let socket = files.path().join("ts.sock");
        assert_eq!(Listener::at(&socket).await, None);
        let listening = UnixListener::bind(&socket).unwrap();
        let pid = Some(std::process::id());
        assert_eq!(Listener::at(&socket).await, Some(Listener { pid }));
        drop(listening);
        assert!(socket.exists());
        assert_eq!(Listener::at(&socket).await, None);
    }
}
