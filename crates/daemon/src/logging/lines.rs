//! From events to lines: which are shown, and what of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::SystemTime;

use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};

use super::queue::Queue;
use super::render::{Colours, Line};
use super::spans::Spans;
use node_config::{Format, Level, Logging};

/// Our own crates. Others speak when it is important: their details explain nothing here.
const OURS: [&str; 3] = ["daemon", "headcni_daemon", "tailnet"];

/// The field that makes an error a fatal one.
const FATAL: &str = "fatal";

/// Level and form, which may change at any time.
#[derive(Debug)]
pub(super) struct Settings {
    level: AtomicU8,
    format: AtomicU8,
}

impl Settings {
    pub(super) fn new(logging: Logging) -> Self {
        let settings = Self {
            level: AtomicU8::new(0),
            format: AtomicU8::new(0),
        };
        settings.set(logging);
        settings
    }

    pub(super) fn set(&self, logging: Logging) {
        self.level.store(logging.level as u8, Ordering::Relaxed);
        self.format.store(logging.format as u8, Ordering::Relaxed);
    }

    fn level(&self) -> Level {
        let level = self.level.load(Ordering::Relaxed);
        let all = [Level::Debug, Level::Info, Level::Warn, Level::Error];
        all.into_iter()
            .find(|known| *known as u8 == level)
            .unwrap_or(Level::Fatal)
    }

    fn format(&self) -> Format {
        if self.format.load(Ordering::Relaxed) == Format::Json as u8 {
            Format::Json
        } else {
            Format::Text
        }
    }

    /// Whether what happens at a place in the code is to be shown. Libraries return what fails, and whoever
    /// called them says so if it matters: their own words are for those who look for a bug.
    fn shows(&self, place: &Metadata<'_>) -> bool {
        let is_ours = is_ours(place.target());
        let least = match self.level() {
            Level::Debug if is_ours => LevelFilter::DEBUG,
            Level::Debug => LevelFilter::INFO,
            _ if !is_ours => return false,
            Level::Info => LevelFilter::INFO,
            Level::Warn => LevelFilter::WARN,
            Level::Error => LevelFilter::ERROR,
            Level::Fatal => return place.is_event() && place.fields().field(FATAL).is_some(),
        };
        *place.level() <= least
    }
}

fn is_ours(target: &str) -> bool {
    OURS.contains(&target.split("::").next().unwrap_or_default())
}

/// A target without the crate's name, if it is one of ours.
fn shortened(target: &str) -> &str {
    match target.split_once("::") {
        Some((first, rest)) if OURS.contains(&first) => rest,
        _ => target,
    }
}

/// Makes a line of every event.
pub(super) struct Lines {
    pub(super) spans: Arc<Spans>,
    settings: Arc<Settings>,
    queue: Arc<Queue>,
    colours: Colours,
}

impl Lines {
    pub(super) fn new(settings: Arc<Settings>, queue: Arc<Queue>, colours: Colours) -> Self {
        Self {
            spans: Arc::default(),
            settings,
            queue,
            colours,
        }
    }

    fn write(&self, line: &Line) {
        let format = self.settings.format();
        let lost = self.queue.put(&line.render(format, self.colours));
        if let Some(lost @ 1..) = lost {
            let notice = Line {
                time: line.time,
                level: Level::Warn,
                target: "logging".to_owned(),
                message: "lines before this one were lost: the log was not read".to_owned(),
                fields: vec![("lost".to_owned(), lost.into())],
            };
            self.queue.put(&notice.render(format, self.colours));
        }
    }
}

impl Subscriber for Lines {
    fn register_callsite(&self, place: &'static Metadata<'static>) -> Interest {
        if self.settings.shows(place) {
            Interest::always()
        } else {
            Interest::never()
        }
    }

    fn enabled(&self, place: &Metadata<'_>) -> bool {
        self.settings.shows(place)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(match self.settings.level() {
            Level::Debug => LevelFilter::DEBUG,
            Level::Info => LevelFilter::INFO,
            Level::Warn => LevelFilter::WARN,
            Level::Error | Level::Fatal => LevelFilter::ERROR,
        })
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        self.spans.open(attributes)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        self.spans.record(id, values);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {
        // No line says what follows from what.
    }

    fn enter(&self, id: &Id) {
        Spans::enter(id);
    }

    fn exit(&self, id: &Id) {
        Spans::exit(id);
    }

    fn clone_span(&self, id: &Id) -> Id {
        self.spans.hold(id);
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        self.spans.release(&id)
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = self.spans.fields_of(event);
        let is_fatal = fields.take_flag(FATAL);
        if self.settings.level() == Level::Fatal && !is_fatal {
            return;
        }
        let place = event.metadata();
        let level = match *place.level() {
            tracing::Level::ERROR if is_fatal => Level::Fatal,
            tracing::Level::ERROR => Level::Error,
            tracing::Level::WARN => Level::Warn,
            tracing::Level::INFO => Level::Info,
            _ => Level::Debug,
        };
        let (message, fields) = fields.into_parts();
        self.write(&Line {
            time: SystemTime::now(),
            level,
            target: shortened(place.target()).to_owned(),
            message,
            fields,
        });
    }
}

#[cfg(test)]
pub(super) mod tests;
