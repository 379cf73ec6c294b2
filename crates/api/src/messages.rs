//! What is said on the daemon's socket: a line of JSON per message.
//!
//! ```text
//! {"version":1,"event":{…}}       how a call of the plugin went; nobody answers
//! {"version":1,"ask":"status"}    a question
//! {"version":1,"answer":…}        its answer
//! {"version":1,"error":"…"}       or why there is none
//! ```
//!
//! Unknown keys are ignored and absent ones have defaults, so that the two sides can be replaced
//! one after the other. The version rises only if that is not enough.

mod answers;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::event::Event;
pub use answers::{
    Answer, Condition, Interface, Lease, Pod, PodCidr, PodState, Route, RouteKind, Status,
};

/// The version of all messages that we write.
pub const VERSION: u32 = 1;

/// The longest line that the daemon reads, without its end.
pub const MAX_REQUEST_BYTES: usize = 64 * 1024;

/// The longest line that the daemon writes, without its end: all pods of a crowded node, and more.
pub const MAX_ANSWER_BYTES: usize = 16 * 1024 * 1024;

/// How large the spool may grow. What the plugin can't say goes there; what doesn't fit is lost.
pub const MAX_SPOOL_BYTES: u64 = 1024 * 1024;

/// The spool's name, in the directory of the socket.
pub const SPOOL_NAME: &str = "events.spool";

/// What can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ask {
    /// How the daemon is: [`Status`].
    Status,
    /// Which pods there are: a list of [`Pod`].
    Pods,
    /// Which addresses are given: a list of [`Lease`].
    Leases,
    /// The links of pods: a list of [`Interface`].
    Interfaces,
    /// Our routes: a list of [`Route`].
    Routes,
    /// Where this node's pods have their addresses from: [`PodCidr`].
    PodCidr,
    /// What must hold, and whether it does: a list of [`Condition`].
    Conditions,
}

impl Ask {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Status,
        Self::Pods,
        Self::Leases,
        Self::Interfaces,
        Self::Routes,
        Self::PodCidr,
        Self::Conditions,
    ];

    /// As it stands in a message.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Pods => "pods",
            Self::Leases => "leases",
            Self::Interfaces => "interfaces",
            Self::Routes => "routes",
            Self::PodCidr => "podcidr",
            Self::Conditions => "conditions",
        }
    }
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Ask {
    type Err = RequestError;

    fn from_str(text: &str) -> Result<Self, RequestError> {
        Self::ALL
            .into_iter()
            .find(|ask| ask.as_str() == text)
            .ok_or_else(|| RequestError::UnknownAsk(text.chars().take(64).collect()))
    }
}

/// What is said to the daemon.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// A call of the plugin has ended.
    Event(Box<Event>),
    /// Somebody wants to know.
    Ask(Ask),
}

/// A line that is no request. The text is for whoever sent it.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// Not a message at all.
    #[error("a message must be one line of JSON like {{\"version\":1,\"ask\":\"status\"}}")]
    NoMessage(#[source] serde_json::Error),
    /// Of a time to come.
    #[error(
        "version {0} is not spoken here, only up to {VERSION}: replace the older of the two programs"
    )]
    Newer(u32),
    /// A question that nobody has an answer to.
    #[error(
        "ask {0:?} is none of status, pods, leases, interfaces, routes, podcidr and conditions"
    )]
    UnknownAsk(String),
    /// Neither the one nor the other.
    #[error("a message has either an event or an ask")]
    Empty,
    /// More than fits into memory.
    #[error("a message may have {MAX_REQUEST_BYTES} bytes at the most")]
    TooLong,
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

#[derive(Serialize, Deserialize)]
struct Envelope<E, A> {
    version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<E>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ask: Option<A>,
}

impl Request {
    /// Reads a line, with or without its end.
    pub fn parse(line: &[u8]) -> Result<Self, RequestError> {
        // First alone: nobody knows what the rest of a newer one looks like.
        let Version { version } = serde_json::from_slice(line).map_err(RequestError::NoMessage)?;
        if version > VERSION {
            return Err(RequestError::Newer(version));
        }
        let envelope: Envelope<Box<Event>, String> =
            serde_json::from_slice(line).map_err(RequestError::NoMessage)?;
        match (envelope.event, envelope.ask) {
            (Some(event), None) => Ok(Self::Event(event)),
            (None, Some(ask)) => ask.parse().map(Self::Ask),
            _ => Err(RequestError::Empty),
        }
    }

    /// The line of a question.
    pub fn ask_line(ask: Ask) -> Vec<u8> {
        line_of(&Envelope::<(), _> {
            version: VERSION,
            event: None,
            ask: Some(ask),
        })
    }

    /// The line of an event; none if it is longer than a line may be.
    pub fn event_line(event: &Event) -> Option<Vec<u8>> {
        let line = line_of(&Envelope::<_, ()> {
            version: VERSION,
            event: Some(event),
            ask: None,
        });
        (line.len() <= MAX_REQUEST_BYTES).then_some(line)
    }
}

/// The line of an answer, or of the reason why there is none.
pub fn answer_line(answer: Result<&Answer, &str>) -> Vec<u8> {
    #[derive(Serialize)]
    struct Envelope<'a> {
        version: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        answer: Option<&'a Answer>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<&'a str>,
    }
    let envelope = |answer: Result<&_, &_>| {
        line_of(&Envelope {
            version: VERSION,
            answer: answer.ok().copied(),
            error: answer.err().copied(),
        })
    };
    let line = envelope(answer.as_ref());
    if line.len() > MAX_ANSWER_BYTES {
        return envelope(Err(&"the answer is too long to be sent"));
    }
    line
}

fn line_of(message: &impl Serialize) -> Vec<u8> {
    // Neither fails: keys are texts, and memory takes all that is written to it.
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests;
