//! What a line looks like.

use std::fmt::Write;
use std::time::SystemTime;

use serde_json::Value;

use node_config::{Format, Level};

/// Whether a terminal shows the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Colours {
    Ansi,
    None,
}

/// An event with all that is known about it.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) time: SystemTime,
    pub(super) level: Level,
    pub(super) target: String,
    pub(super) message: String,
    pub(super) fields: Vec<(String, Value)>,
}

impl Line {
    /// One line, with its end.
    pub(super) fn render(&self, format: Format, colours: Colours) -> String {
        let mut line = match format {
            Format::Text => self.text(colours),
            Format::Json => self.json(),
        };
        line.push('\n');
        line
    }

    fn text(&self, colours: Colours) -> String {
        let mut text = calllog::timestamp(self.time);
        let (name, colour) = match self.level {
            Level::Debug => ("DEBUG", 34),
            Level::Info => ("INFO ", 32),
            Level::Warn => ("WARN ", 33),
            Level::Error => ("ERROR", 31),
            Level::Fatal => ("FATAL", 35),
        };
        // Writing to a string does not fail.
        let _ = match colours {
            Colours::Ansi => write!(text, " \x1b[{colour}m{name}\x1b[0m "),
            Colours::None => write!(text, " {name} "),
        };
        escape(&mut text, &self.target, is_unsafe);
        text.push_str(": ");
        escape(&mut text, &self.message, is_unsafe);
        for (name, value) in &self.fields {
            text.push(' ');
            escape(&mut text, name, is_unsafe);
            text.push('=');
            match value {
                Value::String(value) if is_word(value) => text.push_str(value),
                Value::String(value) => {
                    text.push('"');
                    escape(&mut text, value, |c| {
                        is_unsafe(c) || matches!(c, '"' | '\\')
                    });
                    text.push('"');
                }
                other => text.push_str(&other.to_string()),
            }
        }
        text
    }

    fn json(&self) -> String {
        let level = match self.level {
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
            Level::Fatal => "fatal",
        };
        let mut text = String::from("{");
        let mut put = |name: &str, value: &Value| {
            if text.len() > 1 {
                text.push(',');
            }
            let _ = write!(text, "{}:{value}", Value::from(name));
        };
        put("time", &calllog::timestamp(self.time).into());
        put("level", &level.into());
        put("target", &self.target.as_str().into());
        put("message", &self.message.as_str().into());
        for (name, value) in &self.fields {
            match name.as_str() {
                "time" | "level" | "target" | "message" => put(&format!("{name}_"), value),
                name => put(name, value),
            }
        }
        text.push('}');
        text
    }
}

fn escape(text: &mut String, raw: &str, is_escaped: impl Fn(char) -> bool) {
    for c in raw.chars() {
        if is_escaped(c) {
            text.extend(c.escape_default());
        } else {
            text.push(c);
        }
    }
}

/// What could end a line, or make a terminal show another one than there is.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            // Marks and overrides of the direction of writing, and separators of lines.
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
                | '\u{feff}'
        )
}

/// Whether a value can stand without quotes.
fn is_word(value: &str) -> bool {
    let is_plain = |c: char| !c.is_whitespace() && !is_unsafe(c) && !matches!(c, '"' | '=' | '\\');
    !value.is_empty() && value.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use proptest::prelude::*;
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn line(message: &str, fields: Value) -> Line {
        let Value::Object(fields) = fields else {
            unreachable!("fields are an object")
        };
        Line {
            time: UNIX_EPOCH,
            level: Level::Warn,
            target: "network::rules".to_owned(),
            message: message.to_owned(),
            fields: fields.into_iter().collect(),
        }
    }

    #[rstest]
    #[case(json!({}), "")]
    #[case(json!({ "ip": "10.0.0.2" }), " ip=10.0.0.2")]
    #[case(json!({ "n": 3, "ok": true, "f": 0.5 }), " f=0.5 n=3 ok=true")]
    #[case(json!({ "pod": "" }), r#" pod="""#)]
    #[case(json!({ "pod": "a b" }), r#" pod="a b""#)]
    #[case(json!({ "pod": "a ip=b" }), r#" pod="a ip=b""#)]
    #[case(json!({ "pod": "a\" x=\"b" }), r#" pod="a\" x=\"b""#)]
    #[case(json!({ "pod": "a\n1970-01-01T00:00:00.000Z ERROR" }), r#" pod="a\n1970-01-01T00:00:00.000Z ERROR""#)]
    #[case(json!({ "pod": "\u{1b}[2J\u{202e}" }), r#" pod="\u{1b}[2J\u{202e}""#)]
    #[case(json!({ "pod": "größe" }), " pod=größe")]
    fn a_value_is_quoted_if_it_could_be_taken_for_more(#[case] fields: Value, #[case] shown: &str) {
        let text = line("it went wrong", fields).render(Format::Text, Colours::None);
        let head = "1970-01-01T00:00:00.000Z WARN  network::rules: it went wrong";
        assert_eq!(text, format!("{head}{shown}\n"));
    }

    #[test]
    fn json_keeps_types_and_its_own_keys() {
        let fields = json!({ "level": "mine", "n": 3, "text": "a\nb" });
        let text = line("m", fields).render(Format::Json, Colours::Ansi);
        let parsed: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            parsed,
            json!({
                "time": "1970-01-01T00:00:00.000Z", "level": "warn", "target": "network::rules",
                "message": "m", "level_": "mine", "n": 3, "text": "a\nb",
            })
        );
        assert!(text.starts_with(r#"{"time":"#), "{text}");
    }

    #[test]
    fn only_a_terminal_gets_colours() {
        let plain = line("m", json!({})).render(Format::Text, Colours::None);
        let coloured = line("m", json!({})).render(Format::Text, Colours::Ansi);
        assert!(!plain.contains('\x1b') && coloured.contains("\x1b[33mWARN \x1b[0m"));
    }

    proptest! {
        #[test]
        fn whatever_is_logged_is_one_line(message in ".*", name in ".*", value in ".*") {
            for format in [Format::Text, Format::Json] {
                let fields = json!({ name.clone(): value.clone() });
                let text = line(&message, fields).render(format, Colours::None);
                prop_assert_eq!(text.matches(['\n', '\r']).count(), 1);
                prop_assert!(text.ends_with('\n'));
                if format == Format::Text {
                    prop_assert!(!text.trim_end_matches('\n').contains(char::is_control));
                } else {
                    let parsed: Value = serde_json::from_str(&text).unwrap();
                    prop_assert_eq!(&parsed["message"], &Value::from(message.clone()));
                }
            }
        }
    }
}
