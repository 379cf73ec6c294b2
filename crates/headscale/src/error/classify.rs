//! Maps failed connections and error responses to an [`ErrorKind`].

use std::error::Error as StdError;
use std::io::{self, ErrorKind as IoErrorKind};
use std::iter::successors;
use std::time::Duration;

use rustls::CertificateError;
use serde::Deserialize;

use super::{ConnectError, ErrorKind, TlsError};
use crate::text::{one_line, page_text};
use crate::tls::is_ca_as_end_entity;

/// <https://grpc.io/docs/guides/status-codes/>
const NOT_FOUND: i32 = 5;
const UNKNOWN: i32 = 2;
const INVALID_ARGUMENT: i32 = 3;

/// A request that got no response. `proxy` is the proxy in use.
pub(crate) fn of_transport(
    error: &reqwest::Error,
    proxy: Option<&str>,
    timeout: Duration,
) -> ErrorKind {
    let connect = |cause| ErrorKind::Unreachable {
        cause,
        detail: innermost(error),
    };
    if let Some(tls) = find_cause::<rustls::Error>(error) {
        return ErrorKind::Tls {
            cause: tls_error(tls),
            detail: innermost(error),
        };
    }
    if error.is_timeout() {
        return ErrorKind::Unreachable {
            cause: ConnectError::Timeout(timeout),
            detail: String::new(),
        };
    }
    if let (Some(proxy), true) = (proxy, error.is_connect()) {
        return connect(ConnectError::Proxy(proxy.to_owned()));
    }
    if error.is_dns() {
        return connect(ConnectError::Dns);
    }
    connect(io_error(find_cause::<io::Error>(error)))
}

fn io_error(error: Option<&io::Error>) -> ConnectError {
    match error.map(io::Error::kind) {
        Some(IoErrorKind::ConnectionRefused) => ConnectError::ConnectionRefused,
        Some(IoErrorKind::NetworkUnreachable | IoErrorKind::HostUnreachable) => {
            ConnectError::NoRoute
        }
        _ => ConnectError::Disconnected,
    }
}

fn tls_error(error: &rustls::Error) -> TlsError {
    let certificate = match error {
        rustls::Error::InvalidCertificate(certificate) => certificate,
        rustls::Error::InvalidMessage(_) => return TlsError::NotTls,
        _ => return TlsError::Handshake,
    };
    match certificate {
        // Another CA of the same name gives a bad signature.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => TlsError::UnknownIssuer,
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => TlsError::Expired,
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            TlsError::NotYetValid
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            TlsError::WrongName
        }
        other if is_ca_as_end_entity(other) => TlsError::CaCertificate,
        _ => TlsError::Handshake,
    }
}

/// The innermost cause of this type.
fn find_cause<'e, T: StdError + 'static>(error: &'e (dyn StdError + 'static)) -> Option<&'e T> {
    causes(error)
        .filter_map(|cause| cause.downcast_ref::<T>())
        .last()
}

/// The innermost cause says best what happened; those around it only name the layer.
fn innermost(error: &(dyn StdError + 'static)) -> String {
    let text = causes(error).last().map(ToString::to_string);
    one_line(&text.unwrap_or_default())
}

/// The error and its sources. [`io::Error`] hides the error that it wraps from `source()`.
fn causes<'e>(
    error: &'e (dyn StdError + 'static),
) -> impl Iterator<Item = &'e (dyn StdError + 'static)> {
    successors(Some(error), |&error| {
        let wrapped = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        match wrapped {
            Some(inner) => Some(inner as &(dyn StdError + 'static)),
            None => error.source(),
        }
    })
}

/// grpc-gateway's error body.
#[derive(Deserialize)]
struct GatewayError {
    code: i32,
    #[serde(default)]
    message: String,
}

/// A response that is neither a success nor a redirect.
pub(crate) fn of_response(status: u16, body: &[u8]) -> ErrorKind {
    let text = String::from_utf8_lossy(body);
    // Headscale 0.26 sends this with status 500.
    if status == 401 || (status == 500 && text.trim() == "Unauthorized") {
        return ErrorKind::Unauthorized;
    }
    match serde_json::from_slice::<GatewayError>(body) {
        Ok(GatewayError { code, message }) => {
            let message = one_line(&message);
            if code == NOT_FOUND {
                return ErrorKind::NotFound { message };
            }
            ErrorKind::Refused {
                status,
                code: Some(code),
                message,
            }
        }
        Err(_) => ErrorKind::Refused {
            status,
            code: None,
            message: one_line(&page_text(&text)),
        },
    }
}

/// For calls about one object: not every version has a gRPC code for missing objects. Not for calls
/// with free text such as a policy, where something else may be missing.
pub(crate) fn missing_object(kind: ErrorKind) -> ErrorKind {
    const MESSAGES: [&str; 4] = [
        "record not found",
        "node not found",
        "user not found",
        "node no longer exists",
    ];
    match kind {
        ErrorKind::Refused {
            code: Some(UNKNOWN | INVALID_ARGUMENT),
            message,
            ..
        } if MESSAGES.iter().any(|text| message.contains(text)) => ErrorKind::NotFound { message },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn a_tls_error_is_found_inside_io_errors() {
        let tls = rustls::Error::InvalidCertificate(CertificateError::Expired);
        let error = io::Error::other(io::Error::new(IoErrorKind::InvalidData, tls));
        let found = find_cause::<rustls::Error>(&error).unwrap();
        assert_eq!(tls_error(found), TlsError::Expired);
        assert!(innermost(&error).contains("Expired"));
    }

    #[rstest]
    #[case(IoErrorKind::ConnectionRefused, ConnectError::ConnectionRefused)]
    #[case(IoErrorKind::HostUnreachable, ConnectError::NoRoute)]
    #[case(IoErrorKind::ConnectionReset, ConnectError::Disconnected)]
    fn an_io_error_is_classified_by_its_innermost_kind(
        #[case] kind: IoErrorKind,
        #[case] expected: ConnectError,
    ) {
        let error = io::Error::other(io::Error::from(kind));
        assert_eq!(io_error(find_cause(&error)), expected);
    }

    #[rstest]
    #[case(401, "Unauthorized")]
    #[case(500, "Unauthorized")]
    #[case(401, "<html><title>401</title></html>")]
    fn a_rejected_api_key_is_unauthorized(#[case] status: u16, #[case] body: &str) {
        assert_eq!(
            of_response(status, body.as_bytes()),
            ErrorKind::Unauthorized
        );
    }

    #[test]
    fn grpc_code_5_is_not_found() {
        let body = r#"{"code":5,"message":"Not Found","details":[]}"#;
        let message = "Not Found".to_owned();
        assert_eq!(
            of_response(404, body.as_bytes()),
            ErrorKind::NotFound { message }
        );
    }

    #[rstest]
    #[case(500, r#"{"code":2,"message":"record not found","details":[]}"#)]
    #[case(500, r#"{"code":2,"message":"deleting: node not found"}"#)]
    #[case(400, r#"{"code":3,"message":"node no longer exists in NodeStore: 1"}"#)]
    fn other_codes_are_not_found_only_for_calls_on_one_object(
        #[case] status: u16,
        #[case] body: &str,
    ) {
        let kind = of_response(status, body.as_bytes());
        assert!(matches!(kind, ErrorKind::Refused { .. }), "{kind:?}");
        let kind = missing_object(kind);
        assert!(matches!(kind, ErrorKind::NotFound { .. }), "{kind:?}");
    }

    #[rstest]
    #[case(404, "404 page not found", None, "404 page not found")]
    #[case(
        502,
        "<html>\n<head><title>502 Bad Gateway</title></head><body>nginx</body></html>",
        None,
        "web page: 502 Bad Gateway"
    )]
    #[case(
        503,
        "<!DOCTYPE html><body><h1>Soon</h1>back</body>",
        None,
        "web page: Soon back"
    )]
    #[case(
        400,
        r#"{"code":3,"message":"no\n\tgood","details":[]}"#,
        Some(3),
        "no good"
    )]
    #[case(500, "{}", None, "{}")]
    #[case(504, "", None, "")]
    fn the_message_of_an_error_response_is_short(
        #[case] status: u16,
        #[case] body: &str,
        #[case] code: Option<i32>,
        #[case] message: &str,
    ) {
        let message = message.to_owned();
        let expected = ErrorKind::Refused {
            status,
            code,
            message,
        };
        assert_eq!(of_response(status, body.as_bytes()), expected);
    }
}
