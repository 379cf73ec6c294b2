//! Posts an event to the daemon at the end of an ADD or DEL.
//!
//! The pod waits for at most [`TIMEOUT`], and a daemon that is away, hangs or refuses the event fails
//! no call: the plugin logs an error line, and the daemon lists the pods' records when it starts. An
//! event contains nothing of the configuration, and of `CNI_ARGS` only the pod: anything else may be
//! a secret.

mod event;

use std::path::PathBuf;
use std::time::Duration;

use api::event::Event;
use api::http::{HttpClient, HttpError};
use api::messages::EVENTS_PATH;
use api::paths;
use cni::{Call, Error, Keys};
use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;

use crate::conf::{optional_for_cleanup, path_setting};
pub(crate) use event::event;

const KEY: &str = "daemon_socket";
const VARIABLE: &str = "HEADCNI_DAEMON_SOCKET";
const TIMEOUT: Duration = Duration::from_millis(200);

/// Why the daemon did not accept an event.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotifyError {
    #[error("notify headcni-daemon")]
    Http(#[from] HttpError),
    #[error("notify headcni-daemon: it answered with status {0}")]
    Refused(u16),
}

/// The daemon's API.
#[derive(Debug)]
pub(crate) struct Daemon {
    socket: PathBuf,
}

impl Daemon {
    /// At `daemon_socket`, else at `HEADCNI_DAEMON_SOCKET`, else at the default path.
    pub(crate) fn of_call(call: &Call) -> Result<Self, Error> {
        let default = || Self {
            socket: PathBuf::from(paths::DAEMON_SOCKET),
        };
        let keys = Keys::new(call.conf.keys(), "");
        if keys.value(KEY).is_none() && matches!(call.env.get(VARIABLE), Ok(None)) {
            return Ok(default());
        }
        let configured = path_setting(call, keys, KEY, VARIABLE, "").and_then(|socket| {
            if SocketAddrUnix::new(&socket).is_err() {
                return Err(Error::config(format!(
                    "{KEY} {:?} is longer than 107 bytes, the limit for a socket",
                    socket.display()
                )));
            }
            Ok(Self { socket })
        });
        optional_for_cleanup(call, configured, default())
    }

    /// Posts the event.
    pub(crate) fn notify(&self, event: impl FnOnce() -> Event) -> Result<(), NotifyError> {
        // One system call instead of four where no daemon is installed.
        if access(&self.socket, Access::EXISTS) == Err(Errno::NOENT) {
            let socket = self.socket.clone();
            let source = Errno::NOENT.into();
            return Err(HttpError::Connect { socket, source }.into());
        }
        let client = HttpClient::new(&self.socket).timeout(TIMEOUT);
        // Serializing it can't fail: its keys are strings.
        let body = || serde_json::to_vec(&event()).unwrap_or_default();
        match client.post_json(EVENTS_PATH, body)?.status {
            200..=299 => Ok(()),
            status => Err(NotifyError::Refused(status)),
        }
    }
}

#[cfg(test)]
mod tests;
