//! What an event or a span carries, with the longest parts cut.

use std::error::Error;
use std::fmt::{self, Write};

use serde_json::Value;
use tracing::field::{Field, Visit};

/// No value is longer than this, in bytes.
const MAX_BYTES: usize = 4096;

/// Values by name, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Fields {
    message: String,
    values: Vec<(String, Value)>,
}

impl Fields {
    /// Takes over what somebody around says, unless it is known better already.
    pub(super) fn inherit(&mut self, outer: &Self) {
        for (name, value) in &outer.values {
            if !self.values.iter().any(|(known, _)| known == name) {
                self.values.push((name.clone(), value.clone()));
            }
        }
    }

    /// Takes a field out, and says whether it was true.
    pub(super) fn take_flag(&mut self, name: &str) -> bool {
        let before = self.values.len();
        self.values
            .retain(|(other, value)| other != name || *value != Value::Bool(true));
        self.values.len() < before
    }

    pub(super) fn into_parts(self) -> (String, Vec<(String, Value)>) {
        (self.message, self.values)
    }

    fn put(&mut self, name: &str, value: Value) {
        match self.values.iter_mut().find(|(other, _)| other == name) {
            Some((_, old)) => *old = value,
            None => self.values.push((name.to_owned(), value)),
        }
    }

    fn put_text(&mut self, field: &Field, text: fmt::Arguments<'_>) {
        let mut bounded = Bounded::default();
        // It fails when it has enough.
        let _ = bounded.write_fmt(text);
        let text = bounded.finish();
        match field.name() {
            "message" => self.message = text,
            name => self.put(name.strip_prefix("r#").unwrap_or(name), text.into()),
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put_text(field, format_args!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put_text(field, format_args!("{value}"));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.put_text(field, format_args!("{}", Chain(value)));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field.name(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field.name(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field.name(), value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field.name(), value.into());
    }
}

/// An error and all its causes.
struct Chain<'a>(&'a dyn Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        // A chain may be a ring.
        for _ in 0..16 {
            let Some(error) = cause else { break };
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

/// A text that takes no more than [`MAX_BYTES`].
#[derive(Default)]
struct Bounded {
    text: String,
    is_cut: bool,
}

impl Bounded {
    fn finish(mut self) -> String {
        if self.is_cut {
            self.text.push('…');
        }
        self.text
    }
}

impl Write for Bounded {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let room = MAX_BYTES - self.text.len();
        let end = more.floor_char_boundary(room);
        self.text.push_str(&more[..end]);
        if end < more.len() {
            self.is_cut = true;
            return Err(fmt::Error);
        }
        Ok(())
    }
}
