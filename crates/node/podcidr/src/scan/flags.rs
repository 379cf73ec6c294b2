//! Flags of a command line: `--cluster-cidr=X` and `--cluster-cidr X`.

use super::{Findings, Key, Value};

/// Parses a command line in pieces.
#[derive(Debug, Default)]
pub(super) struct Flags {
    /// The flag whose value is next.
    pending: Option<Key>,
}

impl Flags {
    pub(super) fn feed(&mut self, text: &str, findings: &mut Findings) {
        let is_separator = |c: char| c.is_whitespace() || matches!(c, '"' | '\'');
        for word in text.split(is_separator) {
            let word = word.trim_matches([',', '\\', '[', ']']);
            if word.is_empty() {
                continue;
            }
            if let Some(key) = self.pending.take()
                && !word.starts_with('-')
            {
                findings.add(key, Value::of_text(word));
                continue;
            }
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            match Key::of_flag(name) {
                Some(key) if value.is_empty() => self.pending = Some(key),
                Some(key) => findings.add(key, Value::of_text(value)),
                None => {}
            }
        }
    }
}
