//! What can go wrong in a call, and the remedy.

mod classify;

use std::time::Duration;

use crate::generation::Generation;

pub(crate) use classify::{missing_object, of_response, of_transport};

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to {operation} at {server}: {kind}")]
pub struct Error {
    pub(crate) operation: &'static str,
    pub(crate) server: String,
    pub(crate) kind: ErrorKind,
}

impl Error {
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// Whether the same call may succeed later without any change on this node.
    pub fn is_retryable(&self) -> bool {
        self.kind.is_retryable()
    }

    /// Whether the object of the call does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self.kind, ErrorKind::NotFound { .. })
    }
}

/// Server text in here is one short line without keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ErrorKind {
    /// No connection, or it broke.
    #[error("{cause}{}", in_brackets(detail))]
    Unreachable { cause: ConnectError, detail: String },
    /// The server could not prove its identity.
    #[error("{cause}{}", in_brackets(detail))]
    Tls { cause: TlsError, detail: String },
    #[error("no API key configured: set headscale.apiKeyFile")]
    NoKey,
    #[error(
        "the API key is wrong or expired: create one with \"headscale apikeys create\" and store it \
         in headscale.apiKeyFile"
    )]
    Unauthorized,
    /// The object of the call does not exist.
    #[error("not found{}", in_brackets(message))]
    NotFound { message: String },
    /// Any other error status, from Headscale or a proxy in front of it.
    #[error("refused with status {status}{}", in_brackets(message))]
    Refused {
        status: u16,
        /// The gRPC code if the response is Headscale's own.
        code: Option<i32>,
        message: String,
    },
    /// Not followed, because that would send the API key elsewhere.
    #[error("redirected: set headscale.url to {to}")]
    Redirected { to: String },
    #[error("Headscale {version} is too old: upgrade it to 0.26 or newer")]
    TooOld { version: String },
    #[error(
        "the server is not Headscale{}: check headscale.url",
        in_brackets(detail)
    )]
    NotHeadscale { detail: String },
    #[error("Headscale before {since} has no {feature}{}", remedy.map(|text| format!(": {text}")).unwrap_or_default())]
    Unsupported {
        feature: &'static str,
        since: Generation,
        /// What to do without an upgrade.
        remedy: Option<&'static str>,
    },
    #[error("the response is larger than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("invalid response{}", in_brackets(detail))]
    Malformed { detail: String },
}

/// Why a server could not be reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    #[error("its name can't be resolved: check headscale.url and this node's DNS")]
    Dns,
    #[error("connection refused: check that Headscale is running and that the port is right")]
    ConnectionRefused,
    #[error("no route to host: check this node's routes and firewall")]
    NoRoute,
    #[error(
        "no response within {0:?}: check whether Headscale is overloaded or a firewall drops packets"
    )]
    Timeout(Duration),
    #[error("the proxy {0} does not connect: check HTTPS_PROXY and NO_PROXY")]
    Proxy(String),
    #[error("the connection broke")]
    Disconnected,
}

/// What is wrong with the server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    #[error(
        "its certificate is signed by an unknown CA: set headscale.caFile to the certificate of that CA"
    )]
    UnknownIssuer,
    #[error("its certificate has expired: renew it, or set this node's clock")]
    Expired,
    #[error("its certificate is not valid yet: set this node's clock")]
    NotYetValid,
    #[error(
        "its certificate is for another name: use a name or address of the certificate in headscale.url"
    )]
    WrongName,
    /// The certificate is that of a CA, and not in the CA file.
    #[error(
        "its certificate is that of a CA: add it to headscale.caFile, or give the server a certificate signed by that CA"
    )]
    CaCertificate,
    #[error("the server does not speak TLS: check the port of headscale.url, or use http://")]
    NotTls,
    #[error("the TLS handshake failed")]
    Handshake,
}

impl ErrorKind {
    /// Whether the same call may succeed later without any change on this node.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Refused { status, code, .. } => {
                matches!(status, 408 | 425 | 429 | 502 | 503 | 504)
                    || code.is_some_and(is_retryable_code)
                    // A 500 of a proxy: Headscale's own always have a code.
                    || (*status == 500 && code.is_none())
            }
            Self::Tls { .. }
            | Self::NoKey
            | Self::Unauthorized
            | Self::NotFound { .. }
            | Self::Redirected { .. }
            | Self::TooOld { .. }
            | Self::NotHeadscale { .. }
            | Self::Unsupported { .. }
            | Self::TooLarge { .. }
            | Self::Malformed { .. } => false,
        }
    }

    /// The value of a metric label.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Unreachable {
                cause: ConnectError::Timeout(_),
                ..
            } => "timeout",
            Self::Unreachable { .. } => "unreachable",
            Self::Tls { .. } => "tls",
            Self::NoKey | Self::Unauthorized => "unauthorized",
            Self::NotFound { .. } => "not_found",
            Self::Refused { .. } => "refused",
            Self::Redirected { .. } => "redirected",
            Self::TooOld { .. } | Self::Unsupported { .. } => "unsupported",
            Self::NotHeadscale { .. } => "not_headscale",
            Self::TooLarge { .. } | Self::Malformed { .. } => "malformed",
        }
    }
}

/// `DEADLINE_EXCEEDED`, `RESOURCE_EXHAUSTED`, `ABORTED`, `UNAVAILABLE`:
/// <https://grpc.io/docs/guides/status-codes/>
fn is_retryable_code(code: i32) -> bool {
    matches!(code, 4 | 8 | 10 | 14)
}

fn in_brackets(text: &str) -> String {
    match text {
        "" => String::new(),
        text => format!(" ({text})"),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn refused(status: u16, code: Option<i32>) -> ErrorKind {
        ErrorKind::Refused {
            status,
            code,
            message: String::new(),
        }
    }

    #[rstest]
    #[case(refused(503, None), true)]
    #[case(refused(502, None), true)]
    #[case(refused(500, None), true)]
    #[case(refused(500, Some(2)), false)]
    #[case(refused(503, Some(14)), true)]
    #[case(refused(400, Some(3)), false)]
    #[case(ErrorKind::Unauthorized, false)]
    #[case(ErrorKind::Unreachable { cause: ConnectError::ConnectionRefused, detail: String::new() }, true)]
    fn errors_know_whether_a_retry_makes_sense(
        #[case] kind: ErrorKind,
        #[case] is_retryable: bool,
    ) {
        assert_eq!(kind.is_retryable(), is_retryable);
    }

    #[test]
    fn messages_contain_the_remedy() {
        let kind = ErrorKind::Unsupported {
            feature: "pre-auth keys without a user",
            since: Generation::V0_28,
            remedy: Some("set headscale.user"),
        };
        assert_eq!(
            kind.to_string(),
            "Headscale before 0.28 has no pre-auth keys without a user: set headscale.user"
        );
        assert_eq!(refused(403, None).to_string(), "refused with status 403");
    }
}
