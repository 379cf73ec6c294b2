//! What can go wrong in a call, and what to do about it.

use std::time::Duration;

use super::generation::Generation;

/// What went wrong. Texts of the server are shortened and in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// There was no connection, or it broke.
    #[error("{why}{}", in_brackets(detail))]
    Unreachable {
        /// How.
        why: Unreachable,
        /// What the system said.
        detail: String,
    },
    /// There is a server, but no telling whether it is the right one.
    #[error("{why}{}", in_brackets(detail))]
    Tls {
        /// What is wrong with it.
        why: TlsFault,
        /// What the library said.
        detail: String,
    },
    /// A call that needs a key, and there is none.
    #[error("there is no API key: set headscale.apiKeyFile")]
    NoKey,
    /// The key is not taken.
    #[error(
        "the API key is wrong or has expired: make one with \"headscale apikeys create\" and put it \
         into headscale.apiKeyFile"
    )]
    Unauthorized,
    /// What the call is about does not exist (any more).
    #[error("not found{}", in_brackets(message))]
    NotFound {
        /// What the server said.
        message: String,
    },
    /// The server, or a proxy in front of it, says no.
    #[error("refused with status {status}{}", in_brackets(message))]
    Refused {
        /// Of HTTP.
        status: u16,
        /// Of gRPC, if Headscale itself refused.
        code: Option<i32>,
        /// What it said.
        message: String,
    },
    /// The server is elsewhere.
    #[error("redirected: headscale.url should be {to}")]
    Redirected {
        /// Where, by its own word. It is not followed: it would be sent the key.
        to: String,
    },
    /// The server is older than what we can speak to.
    #[error("Headscale {version} is too old: upgrade it to 0.26 or newer")]
    TooOld {
        /// As far as it is known.
        version: String,
    },
    /// Whoever answers is not Headscale.
    #[error(
        "whoever answers there is not Headscale{}: look at headscale.url",
        in_brackets(detail)
    )]
    NotHeadscale {
        /// What it answered.
        detail: String,
    },
    /// The server can't do that in its version.
    #[error("Headscale before {since} has no {what}{}", remedy.map(|text| format!(": {text}")).unwrap_or_default())]
    Unsupported {
        /// What.
        what: &'static str,
        /// Which can.
        since: Generation,
        /// What to do without an upgrade.
        remedy: Option<&'static str>,
    },
    /// The answer is longer than any should be.
    #[error("the answer is longer than {limit} bytes")]
    TooLarge {
        /// How much is read.
        limit: usize,
    },
    /// The answer can't be read.
    #[error("the answer can't be read{}", in_brackets(detail))]
    Malformed {
        /// Why.
        detail: String,
    },
}

/// How a server was not reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreachable {
    /// Its name has no address.
    #[error("its name can't be resolved: look at headscale.url and at this node's DNS")]
    Name,
    /// Nobody listens there.
    #[error("nobody listens there: is Headscale running, and is the port right?")]
    Refused,
    /// No packets go there.
    #[error("there is no way there: look at this node's routes and firewall")]
    NoRoute,
    /// No answer came in time.
    #[error("no answer within {0:?}: is it overloaded, or does a firewall drop packets?")]
    Timeout(Duration),
    /// The proxy is the trouble.
    #[error("the proxy {0} makes no connection: look at HTTPS_PROXY and NO_PROXY")]
    Proxy(String),
    /// It was there, and is gone.
    #[error("the connection broke")]
    Broken,
}

/// What is wrong with a server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsFault {
    /// Nobody we trust has signed it.
    #[error(
        "its certificate is of a CA that is not trusted: set headscale.caFile to the certificate of that CA"
    )]
    UnknownAuthority,
    /// It was valid.
    #[error("its certificate has expired: renew it, or set this node's clock")]
    Expired,
    /// It will be valid.
    #[error("its certificate is not valid yet: set this node's clock")]
    NotYetValid,
    /// It is another server's.
    #[error(
        "its certificate is for another name: let headscale.url have a name or address that is in it"
    )]
    WrongName,
    /// It is a CA's, and no server's.
    #[error(
        "its certificate is a CA's own: put it into headscale.caFile, or give the server one that this CA has signed"
    )]
    Authority,
    /// There is no certificate at all.
    #[error("it does not speak TLS: look at the port of headscale.url, or write http://")]
    NotTls,
    /// Something else.
    #[error("TLS with it does not work")]
    Other,
}

impl Problem {
    /// Whether the same call may succeed later though nobody mends anything here.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Refused { status, code, .. } => {
                matches!(status, 408 | 425 | 429 | 502 | 503 | 504)
                    || code.is_some_and(is_passing_code)
                    // A 500 of a proxy; Headscale's own always has a code.
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

    /// One word, for metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Unreachable {
                why: Unreachable::Timeout(_),
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
fn is_passing_code(code: i32) -> bool {
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

    fn refused(status: u16, code: Option<i32>) -> Problem {
        Problem::Refused {
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
    #[case(Problem::Unauthorized, false)]
    #[case(Problem::Unreachable { why: Unreachable::Refused, detail: String::new() }, true)]
    fn what_passes_by_itself_is_told(#[case] problem: Problem, #[case] is_transient: bool) {
        assert_eq!(problem.is_transient(), is_transient);
    }

    #[test]
    fn a_problem_says_what_to_do() {
        let problem = Problem::Unsupported {
            what: "pre-auth keys without a user",
            since: Generation::V0_28,
            remedy: Some("set headscale.user"),
        };
        assert_eq!(
            problem.to_string(),
            "Headscale before 0.28 has no pre-auth keys without a user: set headscale.user"
        );
        assert_eq!(refused(403, None).to_string(), "refused with status 403");
    }
}
