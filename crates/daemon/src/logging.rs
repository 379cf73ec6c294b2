//! Log lines on stderr, as text or JSON: tracing-subscriber formats them, tracing-appender writes
//! them on a thread of its own.
//!
//! A slow reader of stderr never blocks the daemon: lines are dropped and counted. Level and format
//! can be changed at run time.

use std::fmt;
use std::io::{self, IsTerminal};
use std::panic::{self, PanicHookInfo};
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::Field;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Metadata, Subscriber};
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::Registry;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::FilterFn;
use tracing_subscriber::fmt::format::{self, Format as EventFormat, Full, Json, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::reload;

use node_config::{Format, Level, Logging};

/// Lines that wait for a slow reader; more are dropped.
const BUFFERED_LINES: usize = 1024;

/// Prefixes of our own crates' targets. Other crates log at the level `debug` only: the daemon
/// reports what matters of their errors.
const OWN_TARGETS: [&str; 5] = [
    "daemon",
    "headcni_daemon",
    "headscale",
    "node_",
    "tailscaled",
];

/// The field that marks an error as fatal.
const FATAL: &str = "fatal";

#[derive(Debug, thiserror::Error)]
#[error("start logging: this process has a global tracing subscriber already")]
pub struct LoggingError;

/// Logging of this process. When it is dropped, the last lines are written, for at most a second.
#[derive(Debug)]
pub struct LogHandle {
    filter: reload::Handle<FilterFn, Registry>,
    is_json: Arc<AtomicBool>,
    dropped: ErrorCounter,
    worker: Arc<Mutex<Option<WorkerGuard>>>,
}

/// Starts logging. From now on a panic is logged and aborts the process: otherwise one in a detached
/// task would go unnoticed.
pub fn init(logging: Logging) -> Result<LogHandle, LoggingError> {
    let (stderr, worker) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(BUFFERED_LINES)
        .thread_name("log")
        .finish(io::stderr());
    let dropped = stderr.error_counter();
    let is_json = Arc::new(AtomicBool::new(logging.format == Format::Json));
    let (filter, filter_handle) = reload::Layer::new(filter(logging.level));
    let lines = tracing_subscriber::fmt::layer()
        .event_format(LineFormat::new(Arc::clone(&is_json)))
        .fmt_fields(format::debug_fn(write_field).delimited(" "))
        .with_ansi(has_colors())
        .with_writer(stderr);
    let subscriber = Registry::default().with(filter).with(lines);
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LoggingError)?;
    let worker = Arc::new(Mutex::new(Some(worker)));
    let of_panics = Arc::clone(&worker);
    panic::set_hook(Box::new(move |panic| {
        log_panic(panic);
        flush(&of_panics);
        process::abort();
    }));
    Ok(LogHandle {
        filter: filter_handle,
        is_json,
        dropped,
        worker,
    })
}

impl LogHandle {
    /// Changes level and format from the next line on.
    pub fn reload(&self, logging: Logging) {
        let is_json = logging.format == Format::Json;
        self.is_json.store(is_json, Ordering::Relaxed);
        // Fails only if the subscriber is gone, and it is global.
        let _ = self.filter.reload(filter(logging.level));
    }

    /// The number of lines that were dropped because stderr was too slow.
    pub fn dropped_lines(&self) -> u64 {
        self.dropped.dropped_lines() as u64
    }
}

impl Drop for LogHandle {
    fn drop(&mut self) {
        flush(&self.worker);
    }
}

/// Dropping the guard writes what is buffered, with a timeout. Later lines are lost.
fn flush(worker: &Mutex<Option<WorkerGuard>>) {
    let guard = worker.lock().unwrap_or_else(PoisonError::into_inner).take();
    drop(guard);
}

/// Logs why the process exits. The level `fatal` shows these lines only.
pub fn fatal(reason: impl fmt::Display) {
    tracing::error!(fatal = true, %reason, "headcni-daemon exits");
}

fn log_panic(panic: &PanicHookInfo<'_>) {
    let reason = panic.payload_as_str().unwrap_or("no message");
    let at = panic.location().map(tracing::field::display);
    tracing::error!(fatal = true, at, reason, "panic: this is a bug");
}

/// <https://no-color.org>
fn has_colors() -> bool {
    let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stderr().is_terminal() && !is_unwanted
}

fn filter(level: Level) -> FilterFn {
    const OFF: LevelFilter = LevelFilter::OFF;
    let (is_shown, max): (fn(&Metadata<'_>) -> bool, _) = match level {
        Level::Debug => (
            |metadata| is_within(metadata, LevelFilter::DEBUG, LevelFilter::INFO),
            LevelFilter::DEBUG,
        ),
        Level::Info => (
            |metadata| is_within(metadata, LevelFilter::INFO, OFF),
            LevelFilter::INFO,
        ),
        Level::Warn => (
            |metadata| is_within(metadata, LevelFilter::WARN, OFF),
            LevelFilter::WARN,
        ),
        Level::Error => (
            |metadata| is_within(metadata, LevelFilter::ERROR, OFF),
            LevelFilter::ERROR,
        ),
        Level::Fatal => (
            |metadata| {
                let is_fatal = metadata.fields().field(FATAL).is_some();
                is_fatal && is_within(metadata, LevelFilter::ERROR, OFF)
            },
            LevelFilter::ERROR,
        ),
    };
    FilterFn::new(is_shown).with_max_level_hint(max)
}

fn is_within(metadata: &Metadata<'_>, own: LevelFilter, others: LevelFilter) -> bool {
    let target = metadata.target();
    let is_own = OWN_TARGETS.iter().any(|own| target.starts_with(own));
    *metadata.level() <= if is_own { own } else { others }
}

/// Writes an event as text or as JSON.
struct LineFormat {
    is_json: Arc<AtomicBool>,
    text: EventFormat<Full>,
    json: EventFormat<Json>,
}

impl LineFormat {
    fn new(is_json: Arc<AtomicBool>) -> Self {
        Self {
            is_json,
            text: format::format(),
            json: format::format()
                .json()
                .flatten_event(true)
                .with_current_span(false)
                .with_span_list(false),
        }
    }
}

impl<S, N> FormatEvent<S, N> for LineFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if self.is_json.load(Ordering::Relaxed) {
            self.json.format_event(context, writer, event)
        } else {
            self.text.format_event(context, writer, event)
        }
    }
}

/// Writes a field as text, on one line. Values come from outside too, so one that contains more than
/// a word is quoted: it can forge neither another field nor another line.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let text = format!("{value:?}");
    if field.name() == "message" {
        return text.chars().try_for_each(|c| match c {
            '"' | '\'' | '\\' => writer.write_char(c),
            c => write!(writer, "{}", c.escape_debug()),
        });
    }
    let name = field.name().trim_start_matches("r#");
    let content = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'));
    match content {
        Some(word) if is_word(word) => write!(writer, "{name}={word}"),
        // A string that Debug has escaped already.
        Some(content) if !content.replace("\\\"", "").contains(is_special) => {
            write!(writer, "{name}={text}")
        }
        _ if is_word(&text) => write!(writer, "{name}={text}"),
        _ => write!(writer, "{name}={text:?}"),
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty()
        && !text.contains(|c: char| c.is_whitespace() || matches!(c, '=' | '\\') || is_special(c))
}

/// Whether a character is a quote, or one that Debug escapes.
fn is_special(c: char) -> bool {
    c == '"' || (!matches!(c, '\'' | '\\') && c.escape_debug().len() > 1)
}

#[cfg(test)]
pub(crate) mod tests;
