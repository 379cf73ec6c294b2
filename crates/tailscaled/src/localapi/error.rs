//! What can go wrong between us and a tailscaled.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use hyper::StatusCode;
use serde::Deserialize;

/// More of a stranger's words than this tells nobody anything.
const MOST_CHARACTERS: usize = 300;

/// Why a call came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody listens at the socket.
    #[error("no tailscaled answers at {}: see that it runs", .socket.display())]
    NotRunning {
        /// The socket.
        socket: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The socket can't be opened.
    #[error("open the socket {} of tailscaled: run as root", .socket.display())]
    NoAccess {
        /// The socket.
        socket: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It answers, but not to us.
    #[error("tailscaled denies {call}: {text}: run as root, or as its operator")]
    Denied {
        /// What was asked for.
        call: String,
        /// Its own words.
        text: String,
    },
    /// It answers that it can't.
    #[error("tailscaled refuses {call} ({}): {text}", .status.as_u16())]
    Refused {
        /// What was asked for.
        call: String,
        /// Its answer.
        status: StatusCode,
        /// Its own words.
        text: String,
    },
    /// It took too long.
    #[error("tailscaled has not answered {call} within {limit:?}")]
    Late {
        /// What was asked for.
        call: String,
        /// The time that it had.
        limit: Duration,
    },
    /// The connection broke.
    #[error("talk to tailscaled: {call}")]
    Broken {
        /// What was asked for.
        call: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Nobody needs an answer that long.
    #[error("the answer of tailscaled to {call} has more than {limit_bytes} bytes")]
    TooLong {
        /// What was asked for.
        call: String,
        /// What it may have.
        limit_bytes: usize,
    },
    /// The answer is not what this version understands.
    #[error("understand the answer of tailscaled to {call}: see that its version is supported")]
    Strange {
        /// What was asked for.
        call: String,
        /// Where it is strange.
        #[source]
        source: serde_json::Error,
    },
    /// The event bus has ended.
    #[error("tailscaled has closed its event bus: it ends, or we were too slow")]
    Ended,
    /// A ping came back with an error.
    #[error("ping {address} through the mesh: {text}")]
    NoPong {
        /// Who was to answer.
        address: IpAddr,
        /// Why that was not possible.
        text: String,
    },
}

impl Error {
    /// Whether there is no tailscaled, rather than one that is in trouble.
    pub fn is_absence(&self) -> bool {
        matches!(self, Self::NotRunning { .. })
    }

    pub(super) fn connect(socket: PathBuf, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::NoAccess { socket, source },
            _ => Self::NotRunning { socket, source },
        }
    }

    /// An answer that is no success.
    pub(super) fn answered(call: &str, status: StatusCode, body: &[u8]) -> Self {
        let (call, text) = (call.to_owned(), words(body));
        match status {
            StatusCode::FORBIDDEN => Self::Denied { call, text },
            _ => Self::Refused { call, status, text },
        }
    }

    /// Takes a secret out of what a stranger said.
    pub(super) fn without(mut self, secret: &str) -> Self {
        if let Self::Denied { text, .. } | Self::Refused { text, .. } = &mut self
            && !secret.is_empty()
        {
            *text = text.replace(secret, "<redacted>");
        }
        self
    }
}

/// What tailscaled says is plain text, or JSON with one key.
fn words(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Told {
        #[serde(rename = "Error", alias = "error")]
        error: String,
    }
    match serde_json::from_slice::<Told>(body) {
        Ok(told) => clean(&told.error),
        Err(_) => clean(&String::from_utf8_lossy(body)),
    }
}

/// A stranger's words on one line, not too many of them, and nothing that moves a cursor.
pub(super) fn clean(text: &str) -> String {
    let printable = text
        .trim()
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c });
    printable.take(MOST_CHARACTERS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_tell_an_error_are_read() {
        assert_eq!(words(br#"{"Error":"no route"}"#), "no route");
        assert_eq!(
            words(b"invalid localapi request\n"),
            "invalid localapi request"
        );
        assert_eq!(words(b"a\x1b[2Jb\r\nc"), "a [2Jb  c");
        assert_eq!(words(&[b'x'; 10_000]).len(), MOST_CHARACTERS);
    }

    #[test]
    fn a_denial_is_told_apart() {
        let error = Error::answered("GET status", StatusCode::FORBIDDEN, b"access denied");
        assert!(matches!(error, Error::Denied { .. }), "{error}");
        let error = Error::answered("GET x", StatusCode::NOT_FOUND, b"");
        assert!(matches!(error, Error::Refused { .. }), "{error}");
    }

    #[test]
    fn a_secret_does_not_come_back_by_an_error() {
        let error = Error::answered("POST start", StatusCode::BAD_REQUEST, b"bad key hskey-1-2!");
        let text = error.without("hskey-1-2").to_string();
        assert!(text.contains("<redacted>!"), "{text}");
    }
}
