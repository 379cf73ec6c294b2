use std::error::Error;
use std::fmt;

use rstest::rstest;
use serde_json::json;

use super::*;
use crate::logging::{capture, fatal};

/// What is logged while something is done.
pub(in crate::logging) fn logged(logging: Logging, work: impl FnOnce()) -> String {
    with_settings(logging, |_| work())
}

fn with_settings(logging: Logging, work: impl FnOnce(&Settings)) -> String {
    let (queue, settings) = (Arc::new(Queue::default()), Arc::new(Settings::new(logging)));
    let lines = Lines::new(Arc::clone(&settings), Arc::clone(&queue), Colours::None);
    tracing::subscriber::with_default(lines, || work(&settings));
    queue.take()
}

fn of_level(level: Level) -> Logging {
    Logging {
        level,
        format: Format::Json,
    }
}

fn one_of_each() {
    tracing::trace!("trace");
    tracing::debug!("debug");
    tracing::debug!(target: "hyper::proto", "debug of others");
    tracing::info!("info");
    tracing::info!(target: "kube_client", "info of others");
    tracing::warn!("warn");
    tracing::error!("error");
    tracing::error!(fatal = false, "no fatal error");
    fatal("fatal");
}

#[rstest]
#[case(Level::Debug, 7)]
#[case(Level::Info, 5)]
#[case(Level::Warn, 4)]
#[case(Level::Error, 3)]
#[case(Level::Fatal, 1)]
fn a_level_shows_itself_and_what_is_more_important(#[case] level: Level, #[case] shown: usize) {
    let text = logged(of_level(level), one_of_each);
    assert_eq!(text.lines().count(), shown, "{text}");
    assert!(
        !text.contains("trace") && !text.contains("debug of others"),
        "{text}"
    );
    let is_for_bugs = level == Level::Debug;
    assert_eq!(text.contains("info of others"), is_for_bugs, "{text}");
}

#[test]
fn the_end_of_the_process_is_fatal() {
    let lines = capture(|| fatal("no configuration"));
    assert_eq!(lines[0]["level"], "fatal");
    assert_eq!(lines[0]["reason"], "no configuration");
    assert_eq!(lines[0].get("fatal"), None);
}

#[test]
fn level_and_form_change_while_lines_are_written() {
    let text = with_settings(of_level(Level::Warn), |settings| {
        let say = || tracing::info!("said");
        say();
        settings.set(of_level(Level::Info));
        tracing::callsite::rebuild_interest_cache();
        say();
        settings.set(Logging {
            level: Level::Info,
            format: Format::Text,
        });
        say();
        settings.set(of_level(Level::Error));
        tracing::callsite::rebuild_interest_cache();
        say();
    });
    let forms: Vec<bool> = text.lines().map(|line| line.starts_with('{')).collect();
    assert_eq!(forms, [true, false], "{text}");
}

#[test]
fn an_event_has_its_own_fields_and_those_of_its_spans() {
    #[derive(Debug, thiserror::Error)]
    #[error("open the store")]
    struct Outer(#[source] std::io::Error);
    let error = Outer(std::io::Error::other("no such\nfile"));
    let lines = capture(|| {
        let pass = tracing::info_span!("pass", part = "network", tries = 1);
        let _entered = pass.enter();
        let call = tracing::info_span!("call", tries = 2, late = tracing::field::Empty);
        call.record("late", true);
        let _entered = call.enter();
        let error: &(dyn Error + 'static) = &error;
        tracing::warn!(error, ratio = 0.5, r#type = ?Some("x"), "went {}", "wrong");
    });
    let mut line = lines[0].clone();
    line.as_object_mut().unwrap().remove("time");
    assert_eq!(
        line,
        json!({
            "level": "warn", "target": "logging::lines::tests", "message": "went wrong",
            "part": "network", "tries": 2, "late": true,
            "error": "open the store: no such\nfile", "ratio": 0.5, "type": "Some(\"x\")",
        })
    );
}

#[test]
fn a_value_without_end_is_cut() {
    struct Endless;
    impl fmt::Debug for Endless {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            loop {
                f.write_str("größer ")?;
            }
        }
    }
    let lines = capture(|| tracing::info!(endless = ?Endless, "long"));
    let value = lines[0]["endless"].as_str().unwrap();
    assert!((4000..4200).contains(&value.len()) && value.ends_with('…'));
}

#[rstest]
#[case("daemon::network::rules", "network::rules")]
#[case("headcni_daemon::main", "main")]
#[case("daemon", "daemon")]
#[case("kube_client::client", "kube_client::client")]
#[case("daemonic::x", "daemonic::x")]
fn our_own_crates_are_not_named(#[case] target: &str, #[case] shown: &str) {
    assert_eq!(shortened(target), shown);
}
