//! Questions to the server, before they are sent.

use std::borrow::Cow;

use hyper::Method;
use serde_json::Value;

/// A question to the server.
pub(super) struct Ask<'a> {
    pub(super) operation: &'static str,
    pub(super) method: Method,
    pub(super) path: Cow<'a, str>,
    pub(super) body: Option<Value>,
    pub(super) needs_key: bool,
}

impl<'a> Ask<'a> {
    /// That needs no key.
    pub(super) fn open(operation: &'static str, path: &'a str) -> Self {
        Self {
            needs_key: false,
            ..Self::get(operation, path)
        }
    }

    pub(super) fn get(operation: &'static str, path: impl Into<Cow<'a, str>>) -> Self {
        Self {
            operation,
            method: Method::GET,
            path: path.into(),
            body: None,
            needs_key: true,
        }
    }

    pub(super) fn post(
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

    pub(super) fn put(operation: &'static str, path: &'a str, body: Value) -> Self {
        Self {
            method: Method::PUT,
            ..Self::post(operation, path, body)
        }
    }

    pub(super) fn delete(operation: &'static str, path: impl Into<Cow<'a, str>>) -> Self {
        Self {
            method: Method::DELETE,
            ..Self::get(operation, path)
        }
    }
}
