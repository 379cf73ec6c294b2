//! What can go wrong between this process and tailscaled.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use hyper::StatusCode;
use serde::Deserialize;

const MAX_CHARS: usize = 300;

/// `call` is the method and path, as in `GET status`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no tailscaled listens on {}: check that it is running", .socket.display())]
    NotRunning {
        socket: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("failed to open tailscaled's socket {}: run as root", .socket.display())]
    SocketPermission {
        socket: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("tailscaled denies access to {call}: {text}: run as root or as its operator")]
    AccessDenied { call: String, text: String },
    #[error("tailscaled rejects {call} with status {}: {text}", .status.as_u16())]
    Status {
        call: String,
        status: StatusCode,
        text: String,
    },
    #[error("no response from tailscaled to {call} within {limit:?}")]
    Timeout { call: String, limit: Duration },
    #[error("the connection to tailscaled failed during {call}")]
    Connection {
        call: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("tailscaled's response to {call} is larger than {limit_bytes} bytes")]
    ResponseTooLarge { call: String, limit_bytes: usize },
    #[error("invalid response from tailscaled to {call}: check that its version is supported")]
    InvalidResponse {
        call: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("tailscaled closed the IPN bus: it is stopping, or this watcher was too slow")]
    BusClosed,
    #[error("failed to ping {address} through the tailnet: {text}")]
    Ping { address: IpAddr, text: String },
}

impl Error {
    /// Whether no tailscaled is running, rather than one that fails.
    pub fn is_not_running(&self) -> bool {
        matches!(self, Self::NotRunning { .. })
    }

    pub(super) fn from_connect(socket: PathBuf, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::SocketPermission { socket, source },
            _ => Self::NotRunning { socket, source },
        }
    }

    pub(super) fn from_status(call: &str, status: StatusCode, body: &[u8]) -> Self {
        let (call, text) = (call.to_owned(), error_text(body));
        match status {
            StatusCode::FORBIDDEN => Self::AccessDenied { call, text },
            _ => Self::Status { call, status, text },
        }
    }

    pub(super) fn redact(mut self, secret: &str) -> Self {
        if let Self::AccessDenied { text, .. } | Self::Status { text, .. } = &mut self
            && !secret.is_empty()
        {
            *text = text.replace(secret, "<redacted>");
        }
        self
    }
}

/// tailscaled sends plain text, or JSON with one key.
fn error_text(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Body {
        #[serde(rename = "Error", alias = "error")]
        error: String,
    }
    match serde_json::from_slice::<Body>(body) {
        Ok(body) => clean(&body.error),
        Err(_) => clean(&String::from_utf8_lossy(body)),
    }
}

/// One short line without control characters.
pub(super) fn clean(text: &str) -> String {
    let printable = text
        .trim()
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c });
    printable.take(MAX_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_plain_text_or_json() {
        assert_eq!(error_text(br#"{"Error":"no route"}"#), "no route");
        assert_eq!(
            error_text(b"invalid localapi request\n"),
            "invalid localapi request"
        );
        assert_eq!(error_text(b"a\x1b[2Jb\r\nc"), "a [2Jb  c");
        assert_eq!(error_text(&[b'x'; 10_000]).len(), MAX_CHARS);
    }

    #[test]
    fn status_403_is_access_denied() {
        let error = Error::from_status("GET status", StatusCode::FORBIDDEN, b"access denied");
        assert!(matches!(error, Error::AccessDenied { .. }), "{error}");
        let error = Error::from_status("GET x", StatusCode::NOT_FOUND, b"");
        assert!(matches!(error, Error::Status { .. }), "{error}");
    }

    #[test]
    fn a_key_in_an_error_is_redacted() {
        let error =
            Error::from_status("POST start", StatusCode::BAD_REQUEST, b"bad key hskey-1-2!");
        let text = error.redact("hskey-1-2").to_string();
        assert!(text.contains("<redacted>!"), "{text}");
    }
}
