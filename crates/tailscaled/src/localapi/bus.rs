//! The IPN bus: an endless response with one JSON message per line.

use std::time::Duration;

use http_body_util::BodyExt;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

use super::error::Error;
use super::notify::Notify;
use super::transport::{Call, Stream, Transport};
use crate::backoff::Backoff;

const CALL: &str = "watch-ipn-bus";
/// Initial state, prefs and health, then changes of peers. Older versions would send private keys
/// without `NO_PRIVATE_KEYS`; newer ones never do.
///
/// <https://pkg.go.dev/tailscale.com/ipn#NotifyWatchOpt>
const MASK: u64 =
    INITIAL_STATE | INITIAL_PREFS | NO_PRIVATE_KEYS | INITIAL_HEALTH | PEER_CHANGES | PEER_PATCHES;
const INITIAL_STATE: u64 = 1 << 1;
const INITIAL_PREFS: u64 = 1 << 2;
const NO_PRIVATE_KEYS: u64 = 1 << 4;
const INITIAL_HEALTH: u64 = 1 << 7;
const PEER_CHANGES: u64 = 1 << 12;
const PEER_PATCHES: u64 = 1 << 15;
/// A longer message is not parsed, but still reported as a change.
const MAX_LINE_BYTES: usize = 16 << 20;
/// Messages that are queued before tailscaled is slowed down.
const QUEUE: usize = 32;
/// Delays before the bus is reopened.
const MIN_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(5);
/// A bus that was open this long resets the back-off. A message does not: a tailscaled that fails
/// right after its start sends the first one too.
const STABLE_AFTER: Duration = Duration::from_secs(5);

/// An open IPN bus.
#[derive(Debug)]
pub struct IpnBus {
    stream: Stream,
    lines: Lines,
}

impl IpnBus {
    pub(super) async fn open(transport: &Transport) -> Result<Self, Error> {
        let call = Call::get(format!("{CALL}?mask={MASK}"));
        Ok(Self {
            stream: transport.stream(call).await?,
            lines: Lines::default(),
        })
    }

    /// The next message; the first one has the initial state. Cancel-safe.
    pub async fn recv(&mut self) -> Result<Notify, Error> {
        loop {
            if let Some(line) = self.lines.next() {
                match line {
                    Line::Complete(line) => return parse(&line),
                    Line::TooLong => return Ok(Notify::unknown_change()),
                }
            }
            let frame = self.stream.body.frame().await.ok_or(Error::BusClosed)?;
            let frame = frame.map_err(|source| Error::Connection {
                call: format!("GET {CALL}"),
                source: source.into(),
            })?;
            if let Some(data) = frame.data_ref() {
                self.lines.push(data);
            }
        }
    }
}

fn parse(line: &[u8]) -> Result<Notify, Error> {
    let value: Value = serde_json::from_slice(line).map_err(|source| Error::InvalidResponse {
        call: format!("GET {CALL}"),
        source,
    })?;
    Ok(Notify::parse(&value))
}

/// Splits a stream into lines of limited length.
#[derive(Debug, Default)]
struct Lines {
    buffer: Vec<u8>,
    /// There is no line end before this index.
    searched: usize,
    /// The current line exceeds the limit.
    is_skipping: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Line {
    Complete(Vec<u8>),
    TooLong,
}

impl Lines {
    fn push(&mut self, data: &[u8]) {
        self.buffer.extend_from_slice(data);
    }

    fn next(&mut self) -> Option<Line> {
        loop {
            let rest = &self.buffer[self.searched..];
            let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
                self.searched = self.buffer.len();
                if self.searched > MAX_LINE_BYTES {
                    self.is_skipping = true;
                }
                if self.is_skipping {
                    self.buffer = Vec::new();
                    self.searched = 0;
                }
                return None;
            };
            let rest = self.buffer.split_off(self.searched + end + 1);
            let line = std::mem::replace(&mut self.buffer, rest);
            self.searched = 0;
            if std::mem::take(&mut self.is_skipping) || line.len() > MAX_LINE_BYTES {
                return Some(Line::TooLong);
            }
            if !line.trim_ascii().is_empty() {
                return Some(Line::Complete(line));
            }
        }
    }
}

/// An event of a [`BusWatcher`].
#[derive(Debug)]
pub enum BusEvent {
    /// The bus is open. Earlier changes may have been missed.
    Connected,
    Notify(Notify),
    /// The bus closed or could not be opened; the watcher retries.
    Lost(Error),
}

/// Reopens the IPN bus after tailscaled restarts. Dropping it closes the bus.
#[derive(Debug)]
pub struct BusWatcher {
    events: mpsc::Receiver<BusEvent>,
    _task: AbortOnDropHandle<()>,
}

impl BusWatcher {
    pub(super) fn start(transport: Transport) -> Self {
        let (sender, events) = mpsc::channel(QUEUE);
        let task = AbortOnDropHandle::new(tokio::spawn(async move {
            // The channel closes with the receiver, which aborts this task anyway.
            let _ = watch(&transport, &sender).await;
        }));
        Self {
            events,
            _task: task,
        }
    }

    /// The next event. Cancel-safe.
    pub async fn recv(&mut self) -> BusEvent {
        match self.events.recv().await {
            Some(event) => event,
            // The task ends only by a panic, which is reported where it happens.
            None => std::future::pending().await,
        }
    }
}

async fn watch(
    transport: &Transport,
    events: &mpsc::Sender<BusEvent>,
) -> Result<(), mpsc::error::SendError<BusEvent>> {
    let mut backoff = Backoff::new(MIN_DELAY, MAX_DELAY, STABLE_AFTER);
    loop {
        let mut opened = None;
        let error = match IpnBus::open(transport).await {
            Err(error) => error,
            Ok(mut bus) => {
                opened = Some(Instant::now());
                events.send(BusEvent::Connected).await?;
                loop {
                    match bus.recv().await {
                        Ok(notify) => events.send(BusEvent::Notify(notify)).await?,
                        Err(error) => break error,
                    }
                }
            }
        };
        let uptime = opened.map_or(Duration::ZERO, |at: Instant| at.elapsed());
        events.send(BusEvent::Lost(error)).await?;
        sleep(backoff.after(uptime)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_wherever_chunks_end() {
        let text = b"{\"a\":1}\n\n{\"b\":2}\n{\"c\"";
        for cut in 0..text.len() {
            let mut lines = Lines::default();
            let mut found = Vec::new();
            for chunk in [&text[..cut], &text[cut..]] {
                lines.push(chunk);
                found.extend(std::iter::from_fn(|| lines.next()));
            }
            let expected =
                [&b"{\"a\":1}\n"[..], b"{\"b\":2}\n"].map(|line| Line::Complete(line.into()));
            assert_eq!(found, expected, "cut at {cut}");
            assert_eq!(lines.buffer, b"{\"c\"");
        }
    }

    #[test]
    fn a_line_over_the_limit_is_dropped_and_reported() {
        let mut lines = Lines::default();
        let chunk = vec![b'x'; 1 << 20];
        for _ in 0..40 {
            lines.push(&chunk);
            assert_eq!(lines.next(), None);
            assert!(lines.buffer.len() <= MAX_LINE_BYTES);
        }
        lines.push(b"x\n{}\n");
        assert_eq!(lines.next(), Some(Line::TooLong));
        assert_eq!(lines.next(), Some(Line::Complete(b"{}\n".to_vec())));
    }
}
