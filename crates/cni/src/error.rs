//! The error object that a plugin prints on stdout.

use std::fmt;

use serde_json::{Map, Value, json};

/// Error codes, as the specification numbers them.
///
/// 1 to 99 belong to the specification, 100 and above to the plugin.
pub mod code {
    /// The configuration's `cniVersion` is not spoken here.
    pub const INCOMPATIBLE_VERSION: u32 = 1;
    /// A field of the configuration is not supported; the message has key and value.
    pub const UNSUPPORTED_FIELD: u32 = 2;
    /// The container does not exist, so that the runtime need not clean up.
    pub const UNKNOWN_CONTAINER: u32 = 3;
    /// A `CNI_…` variable is missing or unusable; the message has its name.
    pub const INVALID_ENVIRONMENT: u32 = 4;
    /// Reading or writing went wrong.
    pub const IO_FAILURE: u32 = 5;
    /// What was read is not the document that it should be.
    pub const DECODING_FAILURE: u32 = 6;
    /// The configuration was read, but does not make sense.
    pub const INVALID_CONFIG: u32 = 7;
    /// A passing trouble: the runtime should try again.
    pub const TRY_AGAIN_LATER: u32 = 11;
    /// STATUS: the plugin can't serve ADD requests.
    pub const NOT_AVAILABLE: u32 = 50;
    /// STATUS: an ADD works, but the container would reach less than it should.
    pub const LIMITED_CONNECTIVITY: u32 = 51;
    /// A delegate died, or what it printed can't be understood.
    pub const DELEGATE_BROKEN: u32 = 100;
    /// A delegate did not answer in time and was ended.
    pub const DELEGATE_TIMEOUT: u32 = 101;
    /// The container has this interface already.
    pub const ALREADY_ATTACHED: u32 = 102;
    /// CHECK: the attachment is not as its ADD left it.
    pub const NOT_AS_STATED: u32 = 103;
}

/// A failed call: what the runtime, and the person behind it, gets to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// One of [`code`], or the code that a delegate gave.
    pub code: u32,
    /// What was attempted, on what, and what is wrong with it.
    pub msg: String,
    /// More for whoever wants to know; may be empty.
    pub details: String,
}

impl Error {
    /// An error without details.
    pub fn new(code: u32, msg: impl Into<String>) -> Self {
        Self {
            code,
            msg: msg.into(),
            details: String::new(),
        }
    }

    /// An error whose message tells the whole chain of causes.
    pub fn caused(code: u32, error: &dyn std::error::Error) -> Self {
        Self::new(code, chain(error))
    }

    /// The same error, with more said in its details.
    #[must_use]
    pub fn with_details(mut self, more: &str) -> Self {
        if !self.details.is_empty() && !more.is_empty() {
            self.details.push_str("; ");
        }
        self.details.push_str(more);
        self
    }

    /// An environment variable that is missing or unusable.
    pub fn variable(name: &str, trouble: impl fmt::Display) -> Self {
        Self::new(code::INVALID_ENVIRONMENT, format!("{name} {trouble}"))
    }

    /// A configuration that can be read but not used.
    pub fn config(msg: impl Into<String>) -> Self {
        Self::new(code::INVALID_CONFIG, msg)
    }

    /// Trouble with a file or directory, with what was attempted on it.
    pub fn io(attempt: impl fmt::Display, source: &std::io::Error) -> Self {
        Self::new(code::IO_FAILURE, format!("{attempt}: {source}"))
    }

    /// The object that goes to stdout.
    pub fn to_json(&self, version: &str) -> Value {
        let mut object = json!({ "cniVersion": version, "code": self.code, "msg": cut(&self.msg) });
        if !self.details.is_empty() {
            object["details"] = cut(&self.details).into();
        }
        object
    }

    /// Reads an error object; `None` if the document isn't one.
    pub fn from_json(document: &Map<String, Value>) -> Option<Self> {
        let text = |key| {
            document
                .get(key)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let code = u32::try_from(document.get("code")?.as_u64()?).ok()?;
        Some(Self {
            code,
            msg: text("msg"),
            details: text("details"),
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (code {})", self.msg, self.code)?;
        if !self.details.is_empty() {
            write!(f, "; {}", self.details)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

/// A text that a person, or a runtime's log, can still take.
fn cut(text: &str) -> String {
    const MAX_CHARS: usize = 4096;
    text.chars().take(MAX_CHARS).collect()
}

/// An error and its causes as one line: `open lease store /x: permission denied`.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_object_reads_back_as_it_was_written() {
        let error = Error::new(11, "busy")
            .with_details("first")
            .with_details("second");
        let object = error.to_json("1.0.0");
        assert_eq!(object["cniVersion"], "1.0.0");
        assert_eq!(object["details"], "first; second");
        assert_eq!(Error::from_json(object.as_object().unwrap()), Some(error));
    }

    #[test]
    fn a_result_is_not_taken_for_an_error() {
        let result = json!({ "cniVersion": "1.0.0", "ips": [] });
        assert_eq!(Error::from_json(result.as_object().unwrap()), None);
    }
}
