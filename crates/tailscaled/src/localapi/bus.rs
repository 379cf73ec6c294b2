//! The event bus: messages without end, one per line.

use std::time::Duration;

use http_body_util::BodyExt;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

use super::error::Error;
use super::notify::Notify;
use super::transport::{Call, Stream, Transport};

/// The name of the call.
const CALL: &str = "watch-ipn-bus";
/// What we want to hear: the state, prefs and complaints to begin with, then changes of members.
/// Older versions are asked not to send private keys; newer ones never do.
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
/// A longer message is not read; it is known to have come all the same.
const LONGEST_LINE_BYTES: usize = 16 << 20;
/// So many messages wait for us; then tailscaled does.
const QUEUE: usize = 32;
/// The first wait before the bus is opened again, and the longest.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// One that was open for so long was well: the next wait is the first again.
const STEADY: Duration = Duration::from_secs(5);

/// An open event bus.
#[derive(Debug)]
pub struct Bus {
    stream: Stream,
    lines: Lines,
}

impl Bus {
    pub(super) async fn open(transport: &Transport) -> Result<Self, Error> {
        let call = Call::get(format!("{CALL}?mask={MASK}"));
        Ok(Self {
            stream: transport.stream(call).await?,
            lines: Lines::default(),
        })
    }

    /// The next message; the first one tells how things are. Nothing is lost if this is cancelled.
    pub async fn recv(&mut self) -> Result<Notify, Error> {
        loop {
            if let Some(line) = self.lines.next() {
                match line {
                    Line::Whole(line) => return read(&line),
                    Line::TooLong => return Ok(Notify::of_anything()),
                }
            }
            let frame = self.stream.body.frame().await.ok_or(Error::Ended)?;
            let frame = frame.map_err(|source| Error::Broken {
                call: format!("GET {CALL}"),
                source: source.into(),
            })?;
            if let Some(data) = frame.data_ref() {
                self.lines.push(data);
            }
        }
    }
}

fn read(line: &[u8]) -> Result<Notify, Error> {
    let value: Value = serde_json::from_slice(line).map_err(|source| Error::Strange {
        call: format!("GET {CALL}"),
        source,
    })?;
    Ok(Notify::read(&value))
}

/// Cuts a stream into lines.
#[derive(Debug, Default)]
struct Lines {
    buffer: Vec<u8>,
    /// Up to here there is no end of a line.
    searched: usize,
    /// The line that comes in has been too long already.
    is_skipping: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Line {
    Whole(Vec<u8>),
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
                if self.searched > LONGEST_LINE_BYTES {
                    self.is_skipping = true;
                }
                if self.is_skipping {
                    self.buffer = Vec::new();
                    self.searched = 0;
                }
                return None;
            };
            let left = self.buffer.split_off(self.searched + end + 1);
            let line = std::mem::replace(&mut self.buffer, left);
            self.searched = 0;
            if std::mem::take(&mut self.is_skipping) || line.len() > LONGEST_LINE_BYTES {
                return Some(Line::TooLong);
            }
            if !line.trim_ascii().is_empty() {
                return Some(Line::Whole(line));
            }
        }
    }
}

/// What happens to an event bus that is opened again and again.
#[derive(Debug)]
pub enum Event {
    /// It is open: whatever happened before may have been missed.
    Connected,
    /// Something has changed.
    Notify(Notify),
    /// It is closed, or could not be opened; it is tried again.
    Lost(Error),
}

/// An event bus that comes back after tailscaled was restarted. It ends with this.
#[derive(Debug)]
pub struct Watch {
    events: mpsc::Receiver<Event>,
    _task: AbortOnDropHandle<()>,
}

impl Watch {
    pub(super) fn start(transport: Transport) -> Self {
        let (sender, events) = mpsc::channel(QUEUE);
        let task = AbortOnDropHandle::new(tokio::spawn(async move {
            // It is closed with the receiver, which ends this anyway.
            let _ = follow(&transport, &sender).await;
        }));
        Self {
            events,
            _task: task,
        }
    }

    /// The next event. Nothing is lost if this is cancelled.
    pub async fn recv(&mut self) -> Event {
        match self.events.recv().await {
            Some(event) => event,
            // The task ends by a panic only, which is seen where it happens.
            None => std::future::pending().await,
        }
    }
}

async fn follow(
    transport: &Transport,
    events: &mpsc::Sender<Event>,
) -> Result<(), mpsc::error::SendError<Event>> {
    let mut wait = FIRST_WAIT;
    loop {
        let error = match Bus::open(transport).await {
            Err(error) => error,
            Ok(mut bus) => {
                let opened = Instant::now();
                events.send(Event::Connected).await?;
                let error = loop {
                    match bus.recv().await {
                        Ok(notify) => events.send(Event::Notify(notify)).await?,
                        Err(error) => break error,
                    }
                };
                // A message is no proof: the first one comes from a tailscaled that then gives up, too.
                if opened.elapsed() >= STEADY {
                    wait = FIRST_WAIT;
                }
                error
            }
        };
        events.send(Event::Lost(error)).await?;
        sleep(wait).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_wherever_the_pieces_end() {
        let text = b"{\"a\":1}\n\n{\"b\":2}\n{\"c\"";
        for cut in 0..text.len() {
            let mut lines = Lines::default();
            let mut found = Vec::new();
            for piece in [&text[..cut], &text[cut..]] {
                lines.push(piece);
                found.extend(std::iter::from_fn(|| lines.next()));
            }
            let expected =
                [&b"{\"a\":1}\n"[..], b"{\"b\":2}\n"].map(|line| Line::Whole(line.into()));
            assert_eq!(found, expected, "cut at {cut}");
            assert_eq!(lines.buffer, b"{\"c\"");
        }
    }

    #[test]
    fn a_line_that_is_too_long_takes_no_room_and_is_a_sign_all_the_same() {
        let mut lines = Lines::default();
        let piece = vec![b'x'; 1 << 20];
        for _ in 0..40 {
            lines.push(&piece);
            assert_eq!(lines.next(), None);
            assert!(lines.buffer.len() <= LONGEST_LINE_BYTES);
        }
        lines.push(b"x\n{}\n");
        assert_eq!(lines.next(), Some(Line::TooLong));
        assert_eq!(lines.next(), Some(Line::Whole(b"{}\n".to_vec())));
    }
}
