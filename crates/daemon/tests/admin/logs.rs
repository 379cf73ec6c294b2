//! A log belongs to a process, so each of these has one of its own: this program again, which then
//! does nothing but [`speak`].

use std::env;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{self, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use daemon::logging;
use node_config::{Format, Level, Logging};
use rustix::process::Signal;
use serde_json::Value;

/// Lines of this program itself would be somebody else's.
const OURS: &str = "daemon::logs";

const PART: &str = "HEADCNI_TEST_LOG_PART";

/// What a part wrote to stderr, line by line.
fn spoken(part: &str) -> Vec<String> {
    ended(part).0
}

/// The same, and how it ended.
fn ended(part: &str) -> (Vec<String>, ExitStatus) {
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args(["--exact", "logs::speak", "--ignored", "--nocapture"])
        .env(PART, part)
        .env_remove("RUST_BACKTRACE")
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut text = String::new();
    let mut stderr = child.stderr.take().unwrap();
    stderr.read_to_string(&mut text).unwrap();
    let status = child.wait().unwrap();
    (text.lines().map(str::to_owned).collect(), status)
}

#[test]
#[ignore = "other tests start it, in a process of its own"]
fn speak() {
    let logging = Logging {
        level: Level::Info,
        format: Format::Text,
    };
    let log = logging::init(logging).unwrap();
    match env::var(PART).as_deref() {
        Ok("reload") => {
            tracing::debug!(target: OURS, "not shown");
            tracing::info!(target: OURS, pod = "a\nb", "as text");
            log.reload(Logging {
                level: Level::Debug,
                format: Format::Json,
            });
            tracing::debug!(target: OURS, "as json");
            log.reload(Logging {
                level: Level::Fatal,
                format: Format::Text,
            });
            tracing::error!(target: OURS, "not shown");
            logging::fatal("the end");
        }
        Ok("panic") => {
            (0..500).for_each(|number| tracing::info!(target: OURS, number, "before"));
            // Nobody waits for it, as for a task whose handle is dropped.
            drop(thread::spawn(|| panic!("two\nlines")));
            thread::sleep(Duration::from_mins(1));
            tracing::info!(target: OURS, "after");
        }
        Ok("twice") => {
            let error = logging::init(logging).unwrap_err();
            tracing::error!(target: OURS, %error, "again");
        }
        Ok("many") => {
            (0..500).for_each(|number| tracing::info!(target: OURS, number, "one of many"));
            drop(log);
            process::abort();
        }
        other => unreachable!("no such part: {other:?}"),
    }
}

#[test]
fn level_and_form_are_changed_while_the_process_runs() {
    let lines = spoken("reload");
    assert_eq!(lines.len(), 3, "{lines:#?}");
    assert!(
        lines[0].ends_with(r#"Z INFO  logs: as text pod="a\nb""#),
        "{}",
        lines[0]
    );
    let json: Value = serde_json::from_str(&lines[1]).unwrap();
    assert_eq!(
        (&json["level"], &json["message"]),
        (&"debug".into(), &"as json".into())
    );
    assert!(
        lines[2].ends_with(r#"Z FATAL logging: headcni-daemon ends reason="the end""#),
        "{}",
        lines[2]
    );
}

#[test]
fn a_panic_that_nobody_waits_for_ends_the_process_behind_one_fatal_line() {
    let (lines, status) = ended("panic");
    let signal = status
        .signal()
        .map(|number| Signal::from_named_raw(number).unwrap());
    assert_eq!(signal, Some(Signal::ABORT));
    let last = lines.last().unwrap();
    assert_eq!(lines.len(), 501, "{last}");
    assert!(
        last.contains(" FATAL logging: panic: this is a bug at=")
            && last.contains(r#"reason="two\nlines""#),
        "{last}"
    );
}

#[test]
fn a_second_log_is_refused() {
    let lines = spoken("twice");
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(
        lines[0].contains("something else in this process does already"),
        "{}",
        lines[0]
    );
}

#[test]
fn the_last_line_is_written_before_the_process_ends() {
    let lines = spoken("many");
    assert_eq!(lines.len(), 500);
    assert!(lines[499].ends_with("number=499"), "{}", lines[499]);
}
