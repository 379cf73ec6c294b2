use std::io::Write;

use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;

#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What `work` logs.
fn logged(logging: Logging, work: impl FnOnce()) -> String {
    let buffer = Buffer::default();
    let writer = buffer.clone();
    let is_json = Arc::new(AtomicBool::new(logging.format == Format::Json));
    let lines = tracing_subscriber::fmt::layer()
        .event_format(LineFormat::new(is_json))
        .fmt_fields(format::debug_fn(write_field).delimited(" "))
        .with_ansi(false)
        .with_writer(move || writer.clone());
    let subscriber = Registry::default().with(filter(logging.level)).with(lines);
    tracing::subscriber::with_default(subscriber, work);
    String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap()
}

/// What `work` logs at any level: a JSON object per line.
pub(crate) fn capture(work: impl FnOnce()) -> Vec<Value> {
    let text = logged(logging(Level::Debug, Format::Json), work);
    let parse = |line| serde_json::from_str(line).unwrap();
    text.lines().map(parse).collect()
}

fn logging(level: Level, format: Format) -> Logging {
    Logging { level, format }
}

fn text_of(work: impl FnOnce()) -> String {
    let text = logged(logging(Level::Debug, Format::Text), work);
    let (_, rest) = text.split_once("daemon::logging::tests: ").unwrap();
    rest.to_owned()
}

fn one_of_each() {
    tracing::trace!("trace");
    tracing::debug!("debug");
    tracing::debug!(target: "hyper::proto", "debug of others");
    tracing::info!("info");
    tracing::info!(target: "kube_client", "info of others");
    tracing::warn!("warn");
    tracing::error!("error");
    fatal("fatal");
}

#[rstest]
#[case(Level::Debug, 6)]
#[case(Level::Info, 4)]
#[case(Level::Warn, 3)]
#[case(Level::Error, 2)]
#[case(Level::Fatal, 1)]
fn a_level_shows_itself_and_what_is_more_severe(#[case] level: Level, #[case] shown: usize) {
    let text = logged(logging(level, Format::Json), one_of_each);
    assert_eq!(text.lines().count(), shown, "{text}");
    let is_for_debugging = level == Level::Debug;
    assert_eq!(text.contains("info of others"), is_for_debugging, "{text}");
}

#[test]
fn a_json_line_has_timestamp_level_message_target_and_typed_fields() {
    let mut lines = capture(|| {
        tracing::warn!(ratio = 0.5, tries = 2, r#type = ?Some("x"), text = "a\nb", "went {}", "wrong");
    });
    let line = lines[0].as_object_mut().unwrap();
    let timestamp = line.remove("timestamp").unwrap();
    assert!(timestamp.as_str().unwrap().ends_with('Z'), "{timestamp}");
    assert_eq!(
        lines[0],
        json!({
            "level": "WARN", "target": "daemon::logging::tests", "message": "went wrong",
            "ratio": 0.5, "tries": 2, "type": "Some(\"x\")", "text": "a\nb",
        })
    );
}

#[test]
fn a_fatal_error_is_marked() {
    let lines = capture(|| fatal("no configuration"));
    assert_eq!(lines[0]["level"], "ERROR");
    assert_eq!(lines[0]["fatal"], true);
    assert_eq!(lines[0]["reason"], "no configuration");
}

#[rstest]
#[case("10.0.0.2", "10.0.0.2")]
#[case("größe", "größe")]
#[case("", r#""""#)]
#[case("a b", r#""a b""#)]
#[case("a ip=b", r#""a ip=b""#)]
#[case("a=b", r#""a=b""#)]
#[case("a\" x=\"b", r#""a\" x=\"b""#)]
#[case("a\n2026-01-01T00:00:00Z ERROR", r#""a\n2026-01-01T00:00:00Z ERROR""#)]
#[case("\u{1b}[2J\u{202e}", r#""\u{1b}[2J\u{202e}""#)]
fn a_value_of_more_than_a_word_is_quoted(#[case] value: &str, #[case] shown: &str) {
    let by_value = text_of(|| tracing::info!(pod = value, "m"));
    assert_eq!(by_value, format!("m pod={shown}\n"));
    let by_display = text_of(|| tracing::info!(pod = %value, "m"));
    assert_eq!(by_display, format!("m pod={shown}\n"));
}

proptest! {
    #[test]
    fn every_event_is_one_line(message in ".*", value in ".*") {
        for format in [Format::Text, Format::Json] {
            let text = logged(logging(Level::Info, format), || {
                tracing::info!(display = %value, debug = ?value, value = value.as_str(), "{message}");
            });
            prop_assert_eq!(text.matches(['\n', '\r']).count(), 1);
            prop_assert!(text.ends_with('\n'));
            let is_text = format == Format::Text;
            prop_assert!(!is_text || !text.trim_end_matches('\n').contains(char::is_control));
        }
    }
}
