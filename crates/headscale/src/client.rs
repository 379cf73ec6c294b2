//! The client itself: how a call is made, watched and judged.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::Request;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::ask::Ask;
use super::clock::Clock;
use super::error::Error;
use super::problem::Problem;
use super::refusal::{self, one_line, readable};
use super::secret::Secret;
use super::settings::{Base, Settings, SetupError};
use super::transport::{Answer, Transport};

/// A call that has ended, for metrics.
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    /// What was tried, as in `list nodes`.
    pub operation: &'static str,
    /// How long it took.
    pub took: Duration,
    /// What went wrong.
    pub problem: Option<&'a Problem>,
    /// The two clocks, by the last answer that told the time.
    pub clock: Option<Clock>,
}

type Observer = Arc<dyn Fn(&Observation<'_>) + Send + Sync>;

/// Talks to one Headscale. Clones share their connection.
///
/// Ask for the [version](Self::version) before anything else: to a server that is too old, every node
/// is unknown.
#[derive(Clone)]
pub struct Client {
    transport: Arc<Transport>,
    base: Base,
    api_key: Option<Secret>,
    observer: Option<Observer>,
}

impl Client {
    /// Gets ready, without a call. Reads certificates, and blocks for it.
    pub fn new(settings: &Settings) -> Result<Self, SetupError> {
        let base = Base::parse(&settings.url)?;
        let server = base
            .join("/")
            .map_err(|_| SetupError::Url("is no address"))?;
        let transport = Transport::new(
            &server,
            settings.ca_file.as_deref(),
            &settings.proxies,
            settings.timeout,
        )?;
        // What can't be sent is said now, not at the first call.
        settings.api_key.as_ref().map(authorization).transpose()?;
        Ok(Self {
            transport: Arc::new(transport),
            base,
            api_key: settings.api_key.clone(),
            observer: None,
        })
    }

    /// The same with another key, as when a key is replaced before it expires.
    pub fn with_api_key(&self, key: &Secret) -> Result<Self, SetupError> {
        authorization(key)?;
        Ok(Self {
            api_key: Some(key.clone()),
            ..self.clone()
        })
    }

    /// The same, and `observer` hears of every call that ends.
    #[must_use]
    pub fn observed(&self, observer: impl Fn(&Observation<'_>) + Send + Sync + 'static) -> Self {
        Self {
            observer: Some(Arc::new(observer)),
            ..self.clone()
        }
    }

    /// The server's address, as it was written.
    pub fn url(&self) -> &str {
        self.base.shown()
    }

    /// Whether there is a key, so that more than the version can be asked for.
    pub fn has_api_key(&self) -> bool {
        self.api_key.is_some()
    }

    /// The server's clock and ours, by its last answer.
    pub fn clock(&self) -> Option<Clock> {
        self.transport.clock()
    }

    /// Whether the server says that it is well. It needs no key.
    pub async fn health(&self) -> Result<(), Error> {
        #[derive(Deserialize)]
        struct Health {
            status: String,
        }
        const OPERATION: &str = "ask for the health";
        let health: Health = self.call(Ask::open(OPERATION, "/health")).await?;
        if health.status == "pass" {
            return Ok(());
        }
        let message = one_line(&health.status);
        Err(self.error(
            OPERATION,
            Problem::Refused {
                status: 200,
                code: None,
                message,
            },
        ))
    }

    /// Makes a call that answers with JSON.
    pub(super) async fn call<T: DeserializeOwned>(&self, ask: Ask<'_>) -> Result<T, Error> {
        let operation = ask.operation;
        let is_success = |status: u16| (200..300).contains(&status);
        let judge = |answer: Answer| match answer {
            Answer { status, body, .. } if !is_success(status) => {
                Err(refusal::problem(status, &body))
            }
            Answer { body, .. } => {
                serde_json::from_slice(&body).map_err(|error| Problem::Malformed {
                    detail: unreadable(&error, &self.without_key(&body)),
                })
            }
        };
        let outcome = self.observe(ask, judge).await;
        outcome.map_err(|problem| self.error(operation, problem))
    }

    /// Makes a call about one thing, which may be missing.
    pub(super) async fn call_about<T: DeserializeOwned>(&self, ask: Ask<'_>) -> Result<T, Error> {
        self.call(ask).await.map_err(|error| Error {
            problem: refusal::about_one_thing(error.problem),
            ..error
        })
    }

    /// Makes a call and takes whatever comes back, a redirect excepted.
    pub(super) async fn ask(&self, ask: Ask<'_>) -> Result<Answer, Error> {
        let operation = ask.operation;
        let outcome = self.observe(ask, Ok).await;
        outcome.map_err(|problem| self.error(operation, problem))
    }

    pub(super) fn error(&self, operation: &'static str, problem: Problem) -> Error {
        Error {
            operation,
            server: self.base.shown().to_owned(),
            problem,
        }
    }

    async fn observe<T>(
        &self,
        ask: Ask<'_>,
        judge: impl FnOnce(Answer) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        let operation = ask.operation;
        let began = Instant::now();
        let outcome = match self.exchange(ask).await {
            Ok(answer) => judge(answer),
            Err(problem) => Err(problem),
        };
        if let Some(observer) = &self.observer {
            observer(&Observation {
                operation,
                took: began.elapsed(),
                problem: outcome.as_ref().err(),
                clock: self.clock(),
            });
        }
        outcome
    }

    async fn exchange(&self, ask: Ask<'_>) -> Result<Answer, Problem> {
        let malformed = |error: &dyn fmt::Display| Problem::Malformed {
            detail: one_line(&error.to_string()),
        };
        let uri = self
            .base
            .join(&ask.path)
            .map_err(|error| malformed(&error))?;
        let mut request = Request::builder().method(ask.method).uri(uri);
        if ask.needs_key {
            let key = self.api_key.as_ref().ok_or(Problem::NoKey)?;
            let authorization = authorization(key).map_err(|error| malformed(&error))?;
            request = request.header(AUTHORIZATION, authorization);
        }
        let body = match &ask.body {
            Some(body) => {
                request = request.header(CONTENT_TYPE, "application/json");
                Full::from(body.to_string())
            }
            None => Full::default(),
        };
        let request = request.body(body).map_err(|error| malformed(&error))?;
        let mut answer = self.transport.send(request).await?;
        self.hide_key(&mut answer);
        match (answer.status, &answer.location) {
            (300..400, Some(location)) => Err(Problem::Redirected {
                to: one_line(&self.base.moved(location, &ask.path)),
            }),
            _ => Ok(answer),
        }
    }

    /// Takes our key out of what is shown of an answer: some proxies repeat what they were asked.
    fn hide_key(&self, answer: &mut Answer) {
        // What succeeds is long, and shown only if it can't be read.
        if !(200..300).contains(&answer.status) {
            answer.body = self.without_key(&answer.body).into();
        }
        let location = answer.location.take();
        answer.location = location.map(|text| self.without_key(text.as_bytes()));
    }

    fn without_key(&self, text: &[u8]) -> String {
        let text = String::from_utf8_lossy(text);
        match &self.api_key {
            Some(key) => text.replace(key.expose(), "<redacted>"),
            None => text.into_owned(),
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = self.base.shown();
        f.debug_struct("Client")
            .field("url", &url)
            .finish_non_exhaustive()
    }
}

/// Why an answer can't be read, without its values: a key could be among them.
fn unreadable(error: &serde_json::Error, text: &str) -> String {
    if text.trim_start().starts_with('{') {
        let (line, column) = (error.line(), error.column());
        let what = if error.is_data() {
            "other JSON than expected"
        } else {
            "damaged JSON"
        };
        return format!("{what}, line {line} column {column}");
    }
    one_line(&readable(text))
}

fn authorization(key: &Secret) -> Result<HeaderValue, SetupError> {
    if key.expose().is_empty() {
        return Err(SetupError::ApiKey);
    }
    let text = format!("Bearer {}", key.expose());
    let mut value = HeaderValue::try_from(text).map_err(|_| SetupError::ApiKey)?;
    value.set_sensitive(true);
    Ok(value)
}
