//! What a client has to know before it can call: the server's address, and what was wrong with it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use hyper::Uri;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};

use super::secret::Secret;

/// What a client goes by.
#[derive(Debug)]
pub struct Settings {
    /// The server's address, as in `headscale.url`; what it has for a path stays in front of every
    /// call's.
    pub url: String,
    /// The key to its API. Without one, only what needs none can be asked.
    pub api_key: Option<Secret>,
    /// The authorities to trust, in PEM; with it, no other is trusted, as tailscaled has it with
    /// `SSL_CERT_FILE`. Without it, the system's are.
    pub ca_file: Option<PathBuf>,
    /// How long a call may take, from the connection's begin to the answer's end.
    pub timeout: Duration,
    /// Which way connections go.
    pub proxies: Proxies,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The address is none. It is not shown: people put passwords there.
    #[error("headscale.url {0}: write it like https://headscale.example.org")]
    Url(&'static str),
    /// The key can't be sent.
    #[error(
        "headscale's API key is empty, or has characters that no key has: put the key there and nothing else"
    )]
    ApiKey,
    /// The file of authorities can't be read.
    #[error("read headscale.caFile {path}: let it be a file of certificates in PEM")]
    CaFile {
        /// The file.
        path: PathBuf,
        /// What came in between.
        #[source]
        source: io::Error,
    },
    /// The file has no certificate that could be trusted.
    #[error(
        "headscale.caFile {path} has {what}: put the certificate of Headscale's CA there, in PEM"
    )]
    CaContent {
        /// The file.
        path: PathBuf,
        /// What it has.
        what: String,
    },
    /// The system trusts nobody.
    #[error(
        "no certificates of CAs on this system: install ca-certificates, or set headscale.caFile"
    )]
    NoAuthorities,
    /// The proxy can't be used.
    #[error(
        "the proxy for headscale.url, {0}, is not of a kind that can be used: name one like http://proxy:3128, or have the server in NO_PROXY"
    )]
    Proxy(String),
    /// TLS can't be had.
    #[error("set up TLS")]
    Tls(#[source] rustls::Error),
}

/// Which proxies there are, and for whom they are not.
#[derive(Debug)]
pub struct Proxies(Matcher);

impl Proxies {
    /// What `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` say, in either case.
    pub fn of_environment() -> Self {
        Self(Matcher::from_env())
    }

    /// The same, said here: a proxy for all, and who is reached without it.
    pub fn new(all: &str, none_for: &str) -> Self {
        let (all, none_for) = (all.to_owned(), none_for.to_owned());
        Self(Matcher::builder().all(all).no(none_for).build())
    }

    /// None.
    pub fn none() -> Self {
        Self::new("", "")
    }

    pub(super) fn of(&self, server: &Uri) -> Option<Intercept> {
        self.0.intercept(server)
    }
}

/// The server's address, made ready to have paths appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Base {
    /// With the port, though it may be the usual one: a proxy has to be told.
    origin: String,
    /// Without a slash at its end.
    prefix: String,
    /// As a person wrote it.
    shown: String,
}

impl Base {
    pub(super) fn parse(text: &str) -> Result<Self, SetupError> {
        let text = text.trim();
        let uri: Uri = text.parse().map_err(|_| SetupError::Url("is no address"))?;
        let port = match uri.scheme_str() {
            Some("https") => 443,
            Some("http") => 80,
            _ => {
                return Err(SetupError::Url(
                    "begins neither with https:// nor with http://",
                ));
            }
        };
        let authority = uri.authority().ok_or(SetupError::Url("names no host"))?;
        if authority.as_str().contains('@') {
            return Err(SetupError::Url("has a user or a password in it"));
        }
        if authority.host().is_empty() {
            return Err(SetupError::Url("names no host"));
        }
        // The authority's own port() is none for one that is no number.
        let has_port = authority.as_str() != authority.host();
        let port = match authority.port_u16() {
            Some(port) => port,
            None if has_port => return Err(SetupError::Url("has a port that is none")),
            None => port,
        };
        if uri.query().is_some() {
            return Err(SetupError::Url("has a question mark in it"));
        }
        let scheme = uri.scheme_str().unwrap_or_default();
        Ok(Self {
            origin: format!("{scheme}://{}:{port}", authority.host()),
            prefix: uri.path().trim_end_matches('/').to_owned(),
            shown: text.trim_end_matches('/').to_owned(),
        })
    }

    /// The address of a path that begins with a slash.
    pub(super) fn join(&self, path: &str) -> Result<Uri, hyper::http::uri::InvalidUri> {
        format!("{}{}{path}", self.origin, self.prefix).parse()
    }

    /// For people.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    /// What `headscale.url` should be if `path` was sent on to `location`.
    pub(super) fn moved(&self, location: &str, path: &str) -> String {
        let whole = if location.starts_with('/') {
            let origin = self.shown.strip_suffix(&self.prefix);
            format!("{}{location}", origin.unwrap_or(&self.shown))
        } else {
            location.to_owned()
        };
        let base = whole.strip_suffix(path).unwrap_or(&whole);
        base.trim_end_matches('/').to_owned()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("https://hs.example.org", "https://hs.example.org:443/api")]
    #[case("http://10.0.0.1:8080/", "http://10.0.0.1:8080/api")]
    #[case(
        " https://hs.example.org/head/scale/ ",
        "https://hs.example.org:443/head/scale/api"
    )]
    #[case("https://[fd00::1]", "https://[fd00::1]:443/api")]
    #[case("https://[fd00::1]:8443", "https://[fd00::1]:8443/api")]
    fn paths_come_after_what_the_address_has(#[case] text: &str, #[case] joined: &str) {
        let base = Base::parse(text).unwrap();
        assert_eq!(base.join("/api").unwrap().to_string(), joined);
    }

    #[rstest]
    #[case("")]
    #[case("hs.example.org")]
    #[case("/api")]
    #[case("ftp://hs.example.org")]
    #[case("https://")]
    #[case("https://user:s3cr3t@hs.example.org")]
    #[case("https://hs.example.org?x=1")]
    #[case("https://hs.example.org:99999")]
    fn what_is_no_address_is_refused_and_not_shown(#[case] text: &str) {
        let error = Base::parse(text).unwrap_err().to_string();
        assert!(
            error.ends_with("like https://headscale.example.org"),
            "{error}"
        );
        assert!(!error.contains("s3cr3t"), "{error}");
    }

    #[rstest]
    #[case("https://hs", "https://other.example/version", "https://other.example")]
    #[case("http://hs/sub", "https://hs/sub/version", "https://hs/sub")]
    #[case("https://hs/sub", "/login?next=/version", "https://hs/login?next=")]
    #[case("https://hs", "/version", "https://hs")]
    fn a_redirect_says_where_the_server_is(
        #[case] url: &str,
        #[case] location: &str,
        #[case] moved: &str,
    ) {
        let base = Base::parse(url).unwrap();
        assert_eq!(base.moved(location, "/version"), moved);
    }

    #[rstest]
    #[case("https://hs.example.org", true)]
    #[case("https://10.1.2.3", false)]
    #[case("https://in.lan", false)]
    fn some_are_reached_without_the_proxy(#[case] server: &str, #[case] has_proxy: bool) {
        let proxies = Proxies::new("http://me:word@proxy:3128", "10.0.0.0/8,lan");
        let found = proxies.of(&server.parse().unwrap());
        assert_eq!(found.is_some(), has_proxy);
        assert!(!format!("{proxies:?}").contains("word"));
    }
}
