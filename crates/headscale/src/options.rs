//! [`ClientOptions`]: URL, key, CA file, timeout and proxies of a client.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use hyper_util::client::proxy::matcher::Matcher;
use reqwest::Url;
use reqwest::header::HeaderValue;

use crate::secret::Secret;

#[derive(Debug)]
pub struct ClientOptions {
    /// `headscale.url`. Its path is a prefix of every request path.
    pub url: String,
    /// Without one only public endpoints work.
    pub api_key: Option<Secret>,
    /// PEM file of the only CAs to trust, like `SSL_CERT_FILE` for tailscaled. Default: the system's.
    pub ca_file: Option<PathBuf>,
    /// For a whole call, from connect to the end of the response.
    pub timeout: Duration,
    pub proxies: Proxies,
}

/// A client can't be made from these options.
#[derive(Debug, thiserror::Error)]
pub enum ClientSetupError {
    /// Never shows the URL: people put passwords there.
    #[error("headscale.url {0}: write it like https://headscale.example.org")]
    Url(&'static str),
    #[error(
        "the Headscale API key is empty or contains invalid characters: store only the key in the file"
    )]
    ApiKey,
    #[error("failed to read headscale.caFile {path}: use a file of PEM certificates")]
    CaFile {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "headscale.caFile {path} has {what}: put the certificate of Headscale's CA there, in PEM"
    )]
    CaContent { path: PathBuf, what: String },
    #[error(
        "failed to load the system's CA certificates: install ca-certificates, or set headscale.caFile"
    )]
    SystemCa(#[source] rustls::Error),
    #[error(
        "unsupported proxy {0} for headscale.url: use one like http://proxy:3128, or add the server to NO_PROXY"
    )]
    Proxy(String),
    #[error("failed to set up TLS")]
    Tls(#[source] rustls::Error),
    #[error("failed to set up the HTTP client")]
    Http(#[source] reqwest::Error),
}

/// Proxies and the hosts that are reached without them.
#[derive(Debug)]
pub struct Proxies(Matcher);

impl Proxies {
    /// `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`, in upper or lower case.
    pub fn from_env() -> Self {
        Self(Matcher::from_env())
    }

    /// One proxy for all hosts except those in `no_proxy`, which has the syntax of `NO_PROXY`.
    pub fn new(all: &str, no_proxy: &str) -> Self {
        let (all, no_proxy) = (all.to_owned(), no_proxy.to_owned());
        Self(Matcher::builder().all(all).no(no_proxy).build())
    }

    pub fn none() -> Self {
        Self::new("", "")
    }

    pub(crate) fn select(&self, server: &Url) -> Result<Option<SelectedProxy>, ClientSetupError> {
        let Ok(uri) = server.as_str().parse() else {
            return Err(ClientSetupError::Url("is not a URL"));
        };
        let Some(proxy) = self.0.intercept(&uri) else {
            return Ok(None);
        };
        // User and password are not part of this.
        let address = proxy.uri().to_string().trim_end_matches('/').to_owned();
        if proxy.uri().scheme_str() != Some("http") {
            return Err(ClientSetupError::Proxy(address));
        }
        Ok(Some(SelectedProxy {
            address,
            authorization: proxy.basic_auth().cloned(),
        }))
    }
}

/// The proxy for one server. Errors name it, so it is chosen here and not by reqwest.
#[derive(Clone)]
pub(crate) struct SelectedProxy {
    pub(crate) address: String,
    authorization: Option<HeaderValue>,
}

impl SelectedProxy {
    pub(crate) fn to_reqwest(&self) -> Result<reqwest::Proxy, ClientSetupError> {
        let proxy = reqwest::Proxy::all(&self.address)
            .map_err(|_| ClientSetupError::Proxy(self.address.clone()))?;
        Ok(match &self.authorization {
            Some(value) => proxy.custom_http_auth(value.clone()),
            None => proxy,
        })
    }
}

/// `headscale.url`, ready to have paths appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BaseUrl {
    url: Url,
    configured: String,
}

impl BaseUrl {
    pub(crate) fn parse(text: &str) -> Result<Self, ClientSetupError> {
        let text = text.trim();
        let url = Url::parse(text).map_err(|_| ClientSetupError::Url("is not a URL"))?;
        if !["https", "http"].contains(&url.scheme()) {
            return Err(ClientSetupError::Url(
                "starts with neither https:// nor http://",
            ));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(ClientSetupError::Url("contains a user or a password"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(ClientSetupError::Url("contains a query or a fragment"));
        }
        Ok(Self {
            url,
            configured: text.trim_end_matches('/').to_owned(),
        })
    }

    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    /// As the user wrote it.
    pub(crate) fn configured(&self) -> &str {
        &self.configured
    }

    /// Appends a path that begins with a slash.
    pub(crate) fn join(&self, path: &str) -> Result<Url, impl std::error::Error + use<>> {
        Url::parse(&format!(
            "{}{path}",
            self.url.as_str().trim_end_matches('/')
        ))
    }

    /// What `headscale.url` should be if a request for `path` was redirected to `location`.
    pub(crate) fn redirected(&self, location: &str, path: &str) -> String {
        let target = self.url.join(location).map(String::from);
        let target = target.as_deref().unwrap_or(location);
        let base = target.strip_suffix(path).unwrap_or(target);
        base.trim_end_matches('/').to_owned()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("https://hs.example.org", "https://hs.example.org/api")]
    #[case("http://10.0.0.1:8080/", "http://10.0.0.1:8080/api")]
    #[case(
        " https://hs.example.org/head/scale/ ",
        "https://hs.example.org/head/scale/api"
    )]
    #[case("https://[fd00::1]", "https://[fd00::1]/api")]
    #[case("https://[fd00::1]:8443", "https://[fd00::1]:8443/api")]
    fn a_path_is_appended_to_the_base_url(#[case] base: &str, #[case] joined: &str) {
        let base = BaseUrl::parse(base).unwrap();
        assert_eq!(base.join("/api").unwrap().as_str(), joined);
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
    fn an_invalid_url_is_an_error_that_does_not_show_it(#[case] text: &str) {
        let error = BaseUrl::parse(text).unwrap_err().to_string();
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
    fn a_redirect_gives_the_url_to_configure(
        #[case] url: &str,
        #[case] location: &str,
        #[case] expected: &str,
    ) {
        let base = BaseUrl::parse(url).unwrap();
        assert_eq!(base.redirected(location, "/version"), expected);
    }

    #[rstest]
    #[case("https://hs.example.org", true)]
    #[case("https://10.1.2.3", false)]
    #[case("https://in.lan", false)]
    fn no_proxy_exempts_hosts(#[case] server: &str, #[case] has_proxy: bool) {
        let proxies = Proxies::new("http://me:word@proxy:3128", "10.0.0.0/8,lan");
        let selected = proxies.select(&server.parse().unwrap()).unwrap();
        assert_eq!(selected.is_some(), has_proxy);
        assert!(!format!("{proxies:?}").contains("word"));
    }
}
