//! Logging is global to a process, so each test runs this program again, which then runs a case of
//! [`child`] only.

use std::env;
use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{self, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use daemon::logging;
use node_config::{Format, Level, Logging};
use rustix::process::Signal;
use serde_json::Value;

/// A target of the daemon.
const OWN: &str = "daemon::test";

const CASE: &str = "HEADCNI_TEST_LOG_CASE";

/// The lines that a case writes to stderr.
fn logged(case: &str) -> Vec<String> {
    run(case).0
}

/// The same, and its exit status.
fn run(case: &str) -> (Vec<String>, ExitStatus) {
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args(["--exact", "logging::child", "--ignored", "--nocapture"])
        .env(CASE, case)
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
#[ignore = "not a test: other tests start it"]
fn child() {
    let logging = Logging {
        level: Level::Info,
        format: Format::Text,
    };
    let log = logging::init(logging).unwrap();
    match env::var(CASE).as_deref() {
        Ok("reload") => {
            tracing::debug!(target: OWN, "not shown");
            tracing::info!(target: OWN, pod = "a\nb", "as text");
            log.reload(Logging {
                level: Level::Debug,
                format: Format::Json,
            });
            tracing::debug!(target: OWN, "as json");
            log.reload(Logging {
                level: Level::Fatal,
                format: Format::Text,
            });
            tracing::error!(target: OWN, "not shown");
            logging::fatal("the end");
        }
        Ok("panic") => {
            (0..500).for_each(|number| tracing::info!(target: OWN, number, "before"));
            drop(thread::spawn(|| panic!("two\nlines")));
            thread::sleep(Duration::from_mins(1));
            tracing::info!(target: OWN, "after");
        }
        Ok("twice") => {
            let error = logging::init(logging).unwrap_err();
            tracing::error!(target: OWN, %error, "again");
        }
        Ok("many") => {
            (0..500).for_each(|number| tracing::info!(target: OWN, number, "one of many"));
            drop(log);
            process::abort();
        }
        Ok("blocked") => {
            let started = Instant::now();
            let padding = "x".repeat(500);
            (0..20_000).for_each(|number| tracing::info!(target: OWN, number, padding, "unread"));
            // The parent reads it from stdout: stderr is blocked.
            let millis = started.elapsed().as_millis();
            writeln!(
                io::stdout(),
                "dropped={} millis={millis}",
                log.dropped_lines()
            )
            .unwrap();
            drop(log);
        }
        other => unreachable!("no such case: {other:?}"),
    }
}

#[test]
fn level_and_format_change_at_run_time() {
    let lines = logged("reload");
    assert_eq!(lines.len(), 3, "{lines:#?}");
    assert!(
        lines[0].ends_with(r#"Z  INFO daemon::test: as text pod="a\nb""#),
        "{}",
        lines[0]
    );
    let json: Value = serde_json::from_str(&lines[1]).unwrap();
    assert_eq!(
        (&json["level"], &json["message"]),
        (&"DEBUG".into(), &"as json".into())
    );
    assert!(
        lines[2].contains(" ERROR daemon::logging: headcni-daemon exits fatal=true")
            && lines[2].ends_with(r#"reason="the end""#),
        "{}",
        lines[2]
    );
}

#[test]
fn a_panic_in_a_detached_thread_is_logged_and_aborts_the_process() {
    let (lines, status) = run("panic");
    let signal = status
        .signal()
        .map(|number| Signal::from_named_raw(number).unwrap());
    assert_eq!(signal, Some(Signal::ABORT));
    let last = lines.last().unwrap();
    assert_eq!(lines.len(), 501, "{last}");
    assert!(
        last.contains(" ERROR daemon::logging: panic: this is a bug fatal=true at=")
            && last.contains(r#"reason="two\nlines""#),
        "{last}"
    );
}

#[test]
fn a_second_subscriber_is_refused() {
    let lines = logged("twice");
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(
        lines[0].contains("has a global tracing subscriber already"),
        "{}",
        lines[0]
    );
}

#[test]
fn the_last_line_is_written_before_the_process_exits() {
    let lines = logged("many");
    assert_eq!(lines.len(), 500);
    assert!(lines[499].ends_with("number=499"), "{}", lines[499]);
}

#[test]
fn a_blocked_stderr_does_not_block_the_process_and_dropped_lines_are_counted() {
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args(["--exact", "logging::child", "--ignored", "--nocapture"])
        .env(CASE, "blocked")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // It exits though its stderr, a pipe, is full and never read.
    let mut text = String::new();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success(), "{text}");
    let dropped = text.split("dropped=").nth(1).unwrap();
    let dropped: u64 = dropped.split(' ').next().unwrap().parse().unwrap();
    assert!((10_000..20_000).contains(&dropped), "{text}");
}
