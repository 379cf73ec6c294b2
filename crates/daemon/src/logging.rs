//! Log lines: one per event, to stderr, as text for people or as JSON.
//!
//! Whatever an event carries, it stays one line: control characters are escaped, and long values
//! are cut. Level and form can be changed while the daemon runs. Nobody waits for whoever reads the
//! log: while that one stands still, lines are lost, and their number is told afterwards.

mod fields;
mod lines;
mod queue;
mod render;
mod spans;

use std::fmt;
use std::io::{self, IsTerminal};
use std::panic::{self, PanicHookInfo};
use std::process;
use std::sync::Arc;
use std::time::Duration;

use tracing::callsite::rebuild_interest_cache;

use lines::{Lines, Settings};
use node_config::Logging;
use queue::Queue;
use render::Colours;

/// How long the end of the process waits for its last lines to be written.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// It can be begun once per process.
    #[error("begin to log: something else in this process does already")]
    Twice,
    /// No thread to write lines.
    #[error("start the thread that writes the log")]
    Thread(#[source] io::Error),
}

/// The log of this process; when it is dropped, the last lines are written.
#[derive(Debug)]
pub struct Handle {
    settings: Arc<Settings>,
    queue: Arc<Queue>,
}

/// Begins to log: events from now on, and panics, each of which ends the process. Without that, nobody
/// would notice one in a task that nobody waits for.
pub fn init(logging: Logging) -> Result<Handle, LoggingError> {
    let queue = Arc::new(Queue::default());
    let settings = Arc::new(Settings::new(logging));
    let lines = Lines::new(Arc::clone(&settings), Arc::clone(&queue), colours());
    tracing::subscriber::set_global_default(lines).map_err(|_| LoggingError::Twice)?;
    queue::write_to_stderr(Arc::clone(&queue)).map_err(LoggingError::Thread)?;
    let of_panics = Arc::clone(&queue);
    panic::set_hook(Box::new(move |panic| {
        log_panic(panic);
        of_panics.flush(LAST_WORDS);
        process::abort();
    }));
    Ok(Handle { settings, queue })
}

impl Handle {
    /// Changes level and form from the next line on.
    pub fn reload(&self, logging: Logging) {
        self.settings.set(logging);
        // Which events are of interest is remembered where they happen.
        rebuild_interest_cache();
    }

    /// Waits until all lines are written, but for a second at most. It blocks.
    pub fn flush(&self) {
        self.queue.flush(LAST_WORDS);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Logs why the process ends. The level `fatal` shows these lines only.
pub fn fatal(reason: impl fmt::Display) {
    tracing::error!(fatal = true, %reason, "headcni-daemon ends");
}

fn log_panic(panic: &PanicHookInfo<'_>) {
    let reason = panic.payload_as_str().unwrap_or("no message");
    let at = panic.location().map(tracing::field::display);
    tracing::error!(fatal = true, at, reason, "panic: this is a bug");
}

/// Colours are for people who look at a terminal and did not ask to be spared:
/// <https://no-color.org>.
fn colours() -> Colours {
    let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if io::stderr().is_terminal() && !is_unwanted {
        Colours::Ansi
    } else {
        Colours::None
    }
}

/// What is logged, from debug up, while something is done: a JSON object per line.
#[cfg(test)]
pub(crate) fn capture(work: impl FnOnce()) -> Vec<serde_json::Value> {
    use node_config::{Format, Level};
    let logging = Logging {
        level: Level::Debug,
        format: Format::Json,
    };
    let text = lines::tests::logged(logging, work);
    let parse = |line| serde_json::from_str(line).unwrap();
    text.lines().map(parse).collect()
}
