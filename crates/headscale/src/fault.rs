//! Which problem a failed connection is.

use std::error::Error as StdError;
use std::io::{self, ErrorKind};
use std::iter::successors;
use std::time::Duration;

use rustls::CertificateError as Certificate;
use tokio::time::error::Elapsed;

use super::connect::ProxyFailed;
use super::problem::{Problem, TlsFault, Unreachable};
use super::refusal::one_line;
use super::selfsigned::is_authority;

/// What hyper-util's connector calls a name without an address; its type is not public.
const NO_ADDRESS: &str = "dns error";

/// Judges by the causes; `timeout` is how long a call was given.
pub(super) fn problem(error: &(dyn StdError + 'static), timeout: Duration) -> Problem {
    let causes: Vec<_> = causes(error).collect();
    // The last one says it best; those before it only say who was at work.
    let detail = causes.last().map(ToString::to_string).unwrap_or_default();
    let detail = one_line(&detail);
    let tls = causes
        .iter()
        .find_map(|cause| cause.downcast_ref::<rustls::Error>());
    if let Some(error) = tls {
        let why = tls_fault(error);
        return Problem::Tls { why, detail };
    }
    let proxy = causes
        .iter()
        .find_map(|cause| cause.downcast_ref::<ProxyFailed>());
    let why = if let Some(failed) = proxy {
        Unreachable::Proxy(failed.proxy.clone())
    } else if causes.iter().any(|cause| cause.to_string() == NO_ADDRESS) {
        Unreachable::Name
    } else if causes.iter().any(|cause| cause.is::<Elapsed>()) {
        Unreachable::Timeout(timeout)
    } else {
        let system = causes
            .iter()
            .rev()
            .find_map(|cause| cause.downcast_ref::<io::Error>());
        match system.map(io::Error::kind) {
            Some(ErrorKind::ConnectionRefused) => Unreachable::Refused,
            Some(ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable) => {
                Unreachable::NoRoute
            }
            Some(ErrorKind::TimedOut) => Unreachable::Timeout(timeout),
            _ => Unreachable::Broken,
        }
    };
    Problem::Unreachable { why, detail }
}

/// An error and all below it. [`io::Error`] hides the one that it was made of.
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

fn tls_fault(error: &rustls::Error) -> TlsFault {
    let certificate = match error {
        rustls::Error::InvalidCertificate(certificate) => certificate,
        rustls::Error::InvalidMessage(_) => return TlsFault::NotTls,
        _ => return TlsFault::Other,
    };
    match certificate {
        // A bad signature is what another CA of the same name looks like.
        Certificate::UnknownIssuer | Certificate::BadSignature => TlsFault::UnknownAuthority,
        Certificate::Expired | Certificate::ExpiredContext { .. } => TlsFault::Expired,
        Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => TlsFault::NotYetValid,
        Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => {
            TlsFault::WrongName
        }
        other if is_authority(other) => TlsFault::Authority,
        _ => TlsFault::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_in_an_io_error_is_found() {
        let inner = rustls::Error::InvalidCertificate(Certificate::Expired);
        let error = io::Error::other(io::Error::new(ErrorKind::InvalidData, inner));
        let Problem::Tls { why, detail } = problem(&error, Duration::ZERO) else {
            panic!("no problem of TLS");
        };
        assert_eq!(why, TlsFault::Expired);
        assert!(detail.contains("Expired"), "{detail}");
    }

    #[test]
    fn the_kind_of_an_io_error_decides() {
        for (kind, why) in [
            (ErrorKind::ConnectionRefused, Unreachable::Refused),
            (ErrorKind::HostUnreachable, Unreachable::NoRoute),
            (ErrorKind::ConnectionReset, Unreachable::Broken),
            (ErrorKind::TimedOut, Unreachable::Timeout(Duration::ZERO)),
        ] {
            let found = problem(&io::Error::other(io::Error::from(kind)), Duration::ZERO);
            assert!(matches!(found, Problem::Unreachable { why: found, .. } if found == why));
        }
    }
}
