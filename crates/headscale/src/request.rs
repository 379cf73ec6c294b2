//! [`ApiRequest`]: one call of the REST API before it is sent.

use std::borrow::Cow;

use reqwest::Method;
use serde_json::Value;

pub(crate) struct ApiRequest<'a> {
    /// For errors and metrics, as in `list nodes`.
    pub(crate) operation: &'static str,
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) path: Cow<'a, str>,
    pub(crate) body: Option<Value>,
    pub(crate) needs_key: bool,
}

impl<'a> ApiRequest<'a> {
    /// A GET that needs no API key.
    pub(crate) fn public(operation: &'static str, path: &'a str) -> Self {
        Self {
            needs_key: false,
            ..Self::get(operation, path)
        }
    }

    pub(crate) fn get(operation: &'static str, path: impl Into<Cow<'a, str>>) -> Self {
        Self {
            operation,
            method: Method::GET,
            path: path.into(),
            body: None,
            needs_key: true,
        }
    }

    pub(crate) fn post(
        operation: &'static str,
        path: impl Into<Cow<'a, str>>,
        body: Value,
    ) -> Self {
        Self {
            method: Method::POST,
            body: Some(body),
            ..Self::get(operation, path)
        }
    }

    pub(crate) fn put(operation: &'static str, path: &'a str, body: Value) -> Self {
        Self {
            method: Method::PUT,
            ..Self::post(operation, path, body)
        }
    }

    pub(crate) fn delete(operation: &'static str, path: impl Into<Cow<'a, str>>) -> Self {
        Self {
            method: Method::DELETE,
            ..Self::get(operation, path)
        }
    }
}
