//! Where the plugin tells how calls went, and people ask.
//!
//! A line of JSON per message, as [`api::messages`] has them. Only root and whoever we run as are
//! listened to. However many clients there are and whatever they do, memory is bounded and events
//! come through: few are let in at a time, the others wait in the kernel; one that says nothing
//! makes room for one that does; and what finds no place at all the plugin leaves in the spool,
//! which is read here as well.

mod bind;
mod connection;
mod count;
mod lines;
mod server;
mod slots;
mod spool;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::event::Event;
use api::messages::{Answer, Ask};
use api::paths;
use tokio::sync::{mpsc, oneshot};

use node_core::conditions::Conditions;
use node_core::metrics::Metrics;

pub use bind::SocketError;
pub use count::{ERROR_TYPES, STEPS, STRATEGIES, count};
pub use server::serve;

/// So many clients are attended to at a time.
pub const MAX_CLIENTS: usize = 64;
/// How long a client may take to say something, and to take an answer.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Where to listen.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The socket's path; the spool is beside it.
    pub path: PathBuf,
    /// How often it is looked whether the spool has something, and whether the socket is in its
    /// place.
    pub look_every: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            path: paths::DAEMON_SOCKET.into(),
            look_every: Duration::from_secs(10),
        }
    }
}

/// What the plugin has to say.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// A call has ended.
    Event(Box<Event>),
    /// More calls have ended than there was room to tell of: what is there is to be looked at.
    Missed,
}

/// Somebody wants to know. Whoever answers has [`PATIENCE`]; an error is a text for a person.
#[derive(Debug)]
pub struct Question {
    /// What.
    pub ask: Ask,
    /// Where the answer goes.
    pub reply: oneshot::Sender<Result<Answer, String>>,
}

/// Who deals with what is said.
#[derive(Clone, Debug)]
pub struct Ends {
    /// Gets events. While it is full, clients wait, and then the plugin uses the spool.
    pub news: mpsc::Sender<News>,
    /// Gets questions.
    pub questions: mpsc::Sender<Question>,
    /// Where it is counted.
    pub metrics: Arc<Metrics>,
    /// Where it is told whether the socket is open.
    pub conditions: Arc<Conditions>,
}
