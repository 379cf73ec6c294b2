//! [`Client`]: sends requests, classifies responses, reports each call to an observer.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::header::{AUTHORIZATION, HeaderValue};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::clock::ClockSample;
use crate::error::{self, Error, ErrorKind};
use crate::options::{BaseUrl, ClientOptions, ClientSetupError};
use crate::request::ApiRequest;
use crate::secret::Secret;
use crate::text::{one_line, page_text};
use crate::transport::{RawResponse, Transport};

/// A call that has ended, for metrics.
#[derive(Clone, Copy, Debug)]
pub struct CompletedCall<'a> {
    /// For example `list nodes`.
    pub operation: &'static str,
    pub duration: Duration,
    pub error: Option<&'a ErrorKind>,
    /// From the last response with a `Date` header.
    pub clock: Option<ClockSample>,
}

type Observer = Arc<dyn Fn(&CompletedCall<'_>) + Send + Sync>;

/// Talks to one Headscale. Clones share their connection.
///
/// Call [`version`](Self::version) first: a server that is too old answers every other call with
/// "not found".
#[derive(Clone)]
pub struct Client {
    transport: Arc<Transport>,
    base: BaseUrl,
    api_key: Option<Secret>,
    observer: Option<Observer>,
}

impl Client {
    /// Makes no call. Reads certificate files, so it blocks.
    pub fn new(options: &ClientOptions) -> Result<Self, ClientSetupError> {
        let base = BaseUrl::parse(&options.url)?;
        let transport = Transport::new(
            base.url(),
            options.ca_file.as_deref(),
            &options.proxies,
            options.timeout,
        )?;
        options.api_key.as_ref().map(authorization).transpose()?;
        Ok(Self {
            transport: Arc::new(transport),
            base,
            api_key: options.api_key.clone(),
            observer: None,
        })
    }

    /// The same client with another API key.
    pub fn with_api_key(&self, key: &Secret) -> Result<Self, ClientSetupError> {
        authorization(key)?;
        Ok(Self {
            api_key: Some(key.clone()),
            ..self.clone()
        })
    }

    /// The same client; `observer` runs after every call.
    #[must_use]
    pub fn with_observer(
        &self,
        observer: impl Fn(&CompletedCall<'_>) + Send + Sync + 'static,
    ) -> Self {
        Self {
            observer: Some(Arc::new(observer)),
            ..self.clone()
        }
    }

    /// The server's URL as configured.
    pub fn url(&self) -> &str {
        self.base.configured()
    }

    /// Without an API key only [`health`](Self::health) and [`version`](Self::version) work.
    pub fn has_api_key(&self) -> bool {
        self.api_key.is_some()
    }

    /// The server's clock and this node's, from the last response.
    pub fn clock(&self) -> Option<ClockSample> {
        self.transport.clock()
    }

    /// Needs no API key.
    pub async fn health(&self) -> Result<(), Error> {
        #[derive(Deserialize)]
        struct Health {
            status: String,
        }
        const OPERATION: &str = "check health";
        let health: Health = self.call(ApiRequest::public(OPERATION, "/health")).await?;
        if health.status == "pass" {
            return Ok(());
        }
        Err(self.error(
            OPERATION,
            ErrorKind::Refused {
                status: 200,
                code: None,
                message: one_line(&health.status),
            },
        ))
    }

    /// Sends a request and parses the JSON response.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        request: ApiRequest<'_>,
    ) -> Result<T, Error> {
        self.observe(request, |response| {
            if !response.is_success() {
                return Err(error::of_response(response.status, &response.body));
            }
            serde_json::from_slice(&response.body).map_err(|error| ErrorKind::Malformed {
                detail: describe_json_error(&error, &self.redact(&response.body)),
            })
        })
        .await
    }

    /// As [`call`](Self::call), for a request about one object, which may not exist.
    pub(crate) async fn call_on_object<T: DeserializeOwned>(
        &self,
        request: ApiRequest<'_>,
    ) -> Result<T, Error> {
        self.call(request).await.map_err(|error| Error {
            kind: error::missing_object(error.kind),
            ..error
        })
    }

    /// Returns the response whatever its status; only redirects are errors.
    pub(crate) async fn send(&self, request: ApiRequest<'_>) -> Result<RawResponse, Error> {
        self.observe(request, Ok).await
    }

    pub(crate) fn error(&self, operation: &'static str, kind: ErrorKind) -> Error {
        Error {
            operation,
            server: self.base.configured().to_owned(),
            kind,
        }
    }

    async fn observe<T>(
        &self,
        request: ApiRequest<'_>,
        parse: impl FnOnce(RawResponse) -> Result<T, ErrorKind>,
    ) -> Result<T, Error> {
        let operation = request.operation;
        let start = Instant::now();
        let result = self.exchange(request).await.and_then(parse);
        if let Some(observer) = &self.observer {
            observer(&CompletedCall {
                operation,
                duration: start.elapsed(),
                error: result.as_ref().err(),
                clock: self.clock(),
            });
        }
        result.map_err(|kind| self.error(operation, kind))
    }

    async fn exchange(&self, call: ApiRequest<'_>) -> Result<RawResponse, ErrorKind> {
        let malformed = |error: &dyn fmt::Display| ErrorKind::Malformed {
            detail: one_line(&error.to_string()),
        };
        let url = self
            .base
            .join(&call.path)
            .map_err(|error| malformed(&error))?;
        let mut request = reqwest::Request::new(call.method, url);
        if call.needs_key {
            let key = self.api_key.as_ref().ok_or(ErrorKind::NoKey)?;
            let value = authorization(key).map_err(|error| malformed(&error))?;
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        if let Some(body) = &call.body {
            let json = HeaderValue::from_static("application/json");
            request
                .headers_mut()
                .insert(reqwest::header::CONTENT_TYPE, json);
            *request.body_mut() = Some(body.to_string().into());
        }
        let mut response = self.transport.send(request).await?;
        // Some proxies repeat the request, key included, in their error page. The body of a success is
        // long, and redacted only if it ends up in an error.
        if !response.is_success() {
            response.body = self.redact(&response.body).into_bytes();
        }
        match &response.location {
            Some(location) if (300..400).contains(&response.status) => {
                let target = self.redact(location.as_bytes());
                Err(ErrorKind::Redirected {
                    to: one_line(&self.base.redirected(&target, &call.path)),
                })
            }
            _ => Ok(response),
        }
    }

    fn redact(&self, text: &[u8]) -> String {
        let text = String::from_utf8_lossy(text);
        match &self.api_key {
            Some(key) => text.replace(key.expose(), "<redacted>"),
            None => text.into_owned(),
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("url", &self.url())
            .finish_non_exhaustive()
    }
}

/// Gives the position only: values could contain a key.
fn describe_json_error(error: &serde_json::Error, body: &str) -> String {
    if !body.trim_start().starts_with('{') {
        return one_line(&page_text(body));
    }
    let what = if error.is_data() {
        "unexpected JSON"
    } else {
        "invalid JSON"
    };
    format!("{what}, line {} column {}", error.line(), error.column())
}

fn authorization(key: &Secret) -> Result<HeaderValue, ClientSetupError> {
    if key.expose().is_empty() {
        return Err(ClientSetupError::ApiKey);
    }
    let text = format!("Bearer {}", key.expose());
    let mut value = HeaderValue::try_from(text).map_err(|_| ClientSetupError::ApiKey)?;
    value.set_sensitive(true);
    Ok(value)
}
