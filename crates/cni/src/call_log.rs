//! The call log: one line of JSON per CNI call.
//!
//! Nothing is logged unless the configuration or the environment enables it. A log that can't be
//! written never fails a call. Configurations and variables are never logged as a whole, because
//! they may hold secrets.

mod file;

use std::cell::RefCell;
use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::{Attachment, Call, Env, Error, Keys, NetResult, Pod, Verb};
use serde::{Serialize, Serializer};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Error,
    Warn,
    Info,
    Debug,
}

/// Log level and destination of the call log.
#[derive(Debug, PartialEq)]
pub struct LogSettings {
    level: Level,
    file: Option<PathBuf>,
    to_stderr: bool,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self {
            level: Level::Info,
            file: None,
            to_stderr: false,
        }
    }
}

impl LogSettings {
    /// Reads `log_file`, `log_level` and klog's variables. DEL and GC ignore invalid values.
    pub fn of_call(call: &Call) -> Result<Self, Error> {
        match Self::parse(Keys::new(call.conf.keys(), ""), &call.env) {
            Err(_) if matches!(call.verb, Verb::Del | Verb::Gc) => Ok(Self::default()),
            parsed => parsed,
        }
    }

    fn parse(keys: Keys<'_>, env: &Env) -> Result<Self, Error> {
        let level = match keys.text("log_level")? {
            None | Some("info") => Level::Info,
            Some("error") => Level::Error,
            Some("warn" | "warning") => Level::Warn,
            Some("debug") => Level::Debug,
            Some(_) => return Err(keys.wrong("log_level", "error, warn, info or debug")),
        };
        let file = keys.text("log_file")?.map(PathBuf::from);
        // No device either: stdout belongs to the protocol.
        let is_usable = |file: &PathBuf| {
            file.is_absolute() && !file.starts_with("/dev") && !file.starts_with("/proc")
        };
        if file.as_ref().is_some_and(|file| !is_usable(file)) {
            return Err(keys.wrong("log_file", "an absolute path, not of a device,"));
        }
        // In Kubernetes programs, verbosity 4 is the debug level of klog.
        let verbosity = env
            .get("KLOG_V")?
            .and_then(|text| text.trim().parse::<u32>().ok());
        let raised = match verbosity {
            Some(4..) => Level::Debug,
            Some(1..) => Level::Info,
            _ => level,
        };
        let to_stderr = match env.get("KLOG_LOGTOSTDERR")? {
            Some(text) => matches!(text, "true" | "TRUE" | "True" | "1"),
            // klog writes to stderr by default.
            None => verbosity >= Some(4) && file.is_none(),
        };
        Ok(Self {
            level: level.max(raised),
            file,
            to_stderr,
        })
    }
}

/// The log of one call. The line is written when the call ends.
#[derive(Debug)]
pub struct CallLog<'a> {
    settings: &'a LogSettings,
    started_at: SystemTime,
    started: Instant,
    line: RefCell<Line>,
}

#[derive(Debug, Serialize)]
struct Line {
    time: String,
    level: Level,
    plugin: &'static str,
    verb: &'static str,
    network: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    container: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ifname: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<Pod>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ips: Vec<IpAddr>,
    outcome: CallOutcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u32>,
    #[serde(skip_serializing_if = "String::is_empty")]
    error: String,
    #[serde(rename = "duration_ms", serialize_with = "as_milliseconds")]
    duration: Duration,
    steps: Vec<CallStep>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

/// One step of a call.
#[derive(Debug, Serialize)]
pub struct CallStep {
    /// The type of the executed plugin, or a step of the native datapath.
    #[serde(rename = "plugin")]
    pub name: String,
    /// The verb of the step.
    #[serde(serialize_with = "as_text")]
    pub verb: Verb,
    /// Whether it succeeded.
    pub outcome: CallOutcome,
    /// Its duration.
    #[serde(rename = "duration_ms", serialize_with = "as_milliseconds")]
    pub duration: Duration,
}

/// Outcome of a call or of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CallOutcome {
    /// Success.
    Ok,
    /// Failure.
    Error,
}

/// Summary of a finished call, for the event that is sent to the daemon.
#[derive(Debug)]
pub struct CallSummary {
    /// When it started.
    pub started: SystemTime,
    /// Its duration.
    pub duration: Duration,
    /// The pod that `CNI_ARGS` names.
    pub pod: Option<Pod>,
    /// The addresses in the result of an ADD.
    pub ips: Vec<IpAddr>,
    /// Its steps, in the order in which they ended.
    pub steps: Vec<CallStep>,
}

impl<'a> CallLog<'a> {
    /// Starts the log of a call.
    pub fn start(
        plugin: &'static str,
        settings: &'a LogSettings,
        call: &Call,
        attachment: Option<&Attachment>,
    ) -> Self {
        let started_at = SystemTime::now();
        let line = Line {
            time: timestamp(started_at),
            level: Level::Info,
            plugin,
            verb: call.verb.as_str(),
            network: call.conf.name().to_string(),
            container: attachment.map(|attachment| attachment.container.to_string()),
            ifname: attachment.map(|attachment| attachment.ifname.to_string()),
            pod: attachment.and_then(|attachment| Pod::from_args(&attachment.args)),
            ips: Vec::new(),
            outcome: CallOutcome::Ok,
            code: None,
            error: String::new(),
            duration: Duration::ZERO,
            steps: Vec::new(),
            warnings: Vec::new(),
            notes: Vec::new(),
        };
        Self {
            settings,
            started_at,
            started: Instant::now(),
            line: RefCell::new(line),
        }
    }

    /// Does one step and debug how long it took.
    pub fn step<T, E>(
        &self,
        name: &str,
        verb: Verb,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let started = Instant::now();
        let outcome = work();
        self.line.borrow_mut().steps.push(CallStep {
            name: name.to_owned(),
            verb,
            outcome: match outcome {
                Ok(_) => CallOutcome::Ok,
                Err(_) => CallOutcome::Error,
            },
            duration: started.elapsed(),
        });
        outcome
    }

    /// Records the addresses in the result of an ADD.
    pub fn record_ips(&self, result: &NetResult) {
        let ips = result.ips.iter().map(|ip| ip.address.addr());
        self.line.borrow_mut().ips = ips.collect();
    }

    /// Records a warning. The call continues.
    pub fn warn(&self, text: String) {
        // On stderr too: most installations have no log file, and runtimes show a plugin's stderr.
        let mut line = self.line.borrow_mut();
        let _ = writeln!(std::io::stderr(), "{}: warning: {text}", line.plugin);
        line.warnings.push(text);
    }

    /// Records a note that is logged at level `debug`.
    pub fn debug(&self, text: impl FnOnce() -> String) {
        if self.settings.level >= Level::Debug {
            self.line.borrow_mut().notes.push(text());
        }
    }

    /// Writes the line.
    pub fn finish(self, error: Option<&Error>) -> CallSummary {
        let mut line = self.line.into_inner();
        line.duration = self.started.elapsed();
        if !line.warnings.is_empty() {
            line.level = Level::Warn;
        }
        if let Some(error) = error {
            line.level = Level::Error;
            line.outcome = CallOutcome::Error;
            line.code = Some(error.code);
            line.error.clone_from(&error.msg);
            if !error.details.is_empty() {
                line.error = format!("{}; {}", error.msg, error.details);
            }
        }
        if line.level <= self.settings.level {
            self.settings.write(&mut line);
        }
        CallSummary {
            started: self.started_at,
            duration: line.duration,
            pod: line.pod,
            ips: line.ips,
            steps: line.steps,
        }
    }
}

/// An error that does not fail the call.
#[derive(Serialize)]
struct ErrorLine<'a> {
    time: String,
    level: Level,
    plugin: &'a str,
    verb: &'a str,
    network: String,
    container: String,
    ifname: String,
    error: String,
}

impl LogSettings {
    /// Writes an error line, for an error after the end of the call that does not fail it.
    pub fn write_error(
        &self,
        plugin: &'static str,
        call: &Call,
        attachment: &Attachment,
        error: &(dyn std::error::Error + 'static),
    ) {
        let causes = std::iter::successors(Some(error), |error| error.source());
        let causes: Vec<String> = causes.map(ToString::to_string).collect();
        let line = ErrorLine {
            time: timestamp(SystemTime::now()),
            level: Level::Error,
            plugin,
            verb: call.verb.as_str(),
            network: call.conf.name().to_string(),
            container: attachment.container.to_string(),
            ifname: attachment.ifname.to_string(),
            error: causes.join(": "),
        };
        let mut bytes = serde_json::to_vec(&line).unwrap_or_default();
        bytes.push(b'\n');
        self.append(plugin, &bytes);
    }

    fn write(&self, line: &mut Line) {
        let bytes = render(line);
        self.append(line.plugin, &bytes);
    }

    fn append(&self, plugin: &str, bytes: &[u8]) {
        if self.to_stderr {
            let _ = std::io::stderr().write_all(bytes);
        }
        if let Some(path) = &self.file
            && let Err(error) = file::append(path, bytes)
        {
            let path = path.display();
            let _ = writeln!(std::io::stderr(), "{plugin}: write the log {path}: {error}");
        }
    }
}

/// Renders the line. Long parts are truncated, so that no call can fill a disk.
fn render(line: &mut Line) -> Vec<u8> {
    const MAX_CHARS: usize = 2000;
    const MAX_ITEMS: usize = 100;
    for text in [&mut line.error, &mut line.network] {
        *text = text.chars().take(MAX_CHARS).collect();
    }
    for list in [&mut line.warnings, &mut line.notes] {
        list.truncate(MAX_ITEMS);
        for text in list {
            *text = text.chars().take(MAX_CHARS).collect();
        }
    }
    line.ips.truncate(MAX_ITEMS);
    line.steps.truncate(MAX_ITEMS);
    let mut bytes = serde_json::to_vec(line).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// Milliseconds, with three decimals.
fn as_milliseconds<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64((duration.as_secs_f64() * 1e6).round() / 1e3)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn as_text<S: Serializer>(verb: &Verb, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(verb.as_str())
}

/// RFC 3339 in UTC, with milliseconds.
pub fn timestamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = since.as_secs();
    let (year, month, day) = civil_date(seconds / 86_400);
    let of_day = seconds % 86_400;
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        of_day / 3600,
        of_day / 60 % 60,
        of_day % 60,
        since.subsec_millis()
    )
}

/// The date of a day counted from 1970-01-01.
///
/// Counts years from March, so that the leap day is a year's last:
/// <https://howardhinnant.github.io/date_algorithms.html#civil_from_days>.
fn civil_date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests;
