//! Fallback for text that is not YAML: `podCIDR: X` on its own line, and flags.

use super::flags::Flags;
use super::{Findings, Key, MAX_VALUES, Value};

pub(super) fn findings(text: &str) -> Findings {
    let mut findings = Findings::default();
    let mut flags = Flags::default();
    for line in text.lines() {
        let line = without_comment(line).trim();
        let line = line.strip_prefix("- ").unwrap_or(line);
        match setting(line) {
            Some((key, value)) => findings.add(key, value),
            None => flags.feed(line, &mut findings),
        }
    }
    findings
}

fn without_comment(line: &str) -> &str {
    let is_comment = |at: &usize| line[..*at].chars().last().is_none_or(char::is_whitespace);
    let mut hashes = line.match_indices('#').map(|(at, _)| at);
    hashes.find(is_comment).map_or(line, |at| &line[..at])
}

fn setting(line: &str) -> Option<(Key, Value)> {
    let (key, value) = line.split_once(':')?;
    let key = Key::of_yaml(key.trim().trim_matches(['"', '\'']))?;
    let value = value.trim().trim_matches(['[', ']', '"', '\'']);
    let mut texts = Vec::new();
    for part in value.split(',') {
        match Value::of_text(part.trim().trim_matches(['"', '\''])) {
            Value::Texts(part) if texts.len() < MAX_VALUES => texts.extend(part),
            _ => return Some((key, Value::Wrong)),
        }
    }
    Some((key, Value::Texts(texts)))
}
