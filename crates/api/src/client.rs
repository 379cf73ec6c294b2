//! Asks the daemon: blocking, and never for longer than the caller has patience.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::messages::{
    Ask, Condition, Interface, Lease, MAX_ANSWER_BYTES, Pod, PodCidr, Request, Route, Status,
};

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens.
    #[error("reach the daemon at {}: is headcni-daemon running, and are you root?", path.display())]
    Unreachable {
        /// The socket.
        path: PathBuf,
        /// What the kernel says.
        #[source]
        source: io::Error,
    },
    /// It takes too long.
    #[error("the daemon at {} did not answer within {patience:?}", path.display())]
    Late {
        /// The socket.
        path: PathBuf,
        /// What it was given.
        patience: Duration,
    },
    /// The connection broke.
    #[error("talk to the daemon at {}", path.display())]
    Broken {
        /// The socket.
        path: PathBuf,
        /// How.
        #[source]
        source: io::Error,
    },
    /// What came is no answer.
    #[error("the daemon's answer to {ask} can't be understood")]
    Garbled {
        /// What was asked.
        ask: Ask,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// The daemon's own words.
    #[error("the daemon has no answer to {ask}: {message}")]
    Refused {
        /// What was asked.
        ask: Ask,
        /// Why not.
        message: String,
    },
}

/// A connection to the daemon.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    path: PathBuf,
    patience: Duration,
    /// What came after the end of the last line.
    rest: Vec<u8>,
}

#[derive(Deserialize)]
struct Envelope<T> {
    answer: Option<T>,
    error: Option<String>,
}

impl Client {
    /// Connects, within `patience`. Each question has as long again.
    pub fn connect(path: &Path, patience: Duration) -> Result<Self, ClientError> {
        // Where many wait to be let in, connecting waits without end; so that is for a thread.
        let (sender, connected) = mpsc::channel();
        let target = path.to_owned();
        let unreachable = |source| ClientError::Unreachable {
            path: path.to_owned(),
            source,
        };
        thread::Builder::new()
            .spawn(move || sender.send(UnixStream::connect(target)))
            .map_err(unreachable)?;
        let stream = match connected.recv_timeout(patience) {
            Ok(connected) => connected.map_err(unreachable)?,
            Err(_) => return Err(late(path, patience)),
        };
        Ok(Self {
            stream,
            path: path.to_owned(),
            patience,
            rest: Vec::new(),
        })
    }

    /// How the daemon is.
    pub fn status(&mut self) -> Result<Status, ClientError> {
        self.ask(Ask::Status)
    }

    /// Which pods there are.
    pub fn pods(&mut self) -> Result<Vec<Pod>, ClientError> {
        self.ask(Ask::Pods)
    }

    /// Which addresses are given.
    pub fn leases(&mut self) -> Result<Vec<Lease>, ClientError> {
        self.ask(Ask::Leases)
    }

    /// The links of pods.
    pub fn interfaces(&mut self) -> Result<Vec<Interface>, ClientError> {
        self.ask(Ask::Interfaces)
    }

    /// Our routes.
    pub fn routes(&mut self) -> Result<Vec<Route>, ClientError> {
        self.ask(Ask::Routes)
    }

    /// Where this node's pods have their addresses from.
    pub fn pod_cidr(&mut self) -> Result<PodCidr, ClientError> {
        self.ask(Ask::PodCidr)
    }

    /// What must hold, and whether it does.
    pub fn conditions(&mut self) -> Result<Vec<Condition>, ClientError> {
        self.ask(Ask::Conditions)
    }

    fn ask<T: DeserializeOwned>(&mut self, ask: Ask) -> Result<T, ClientError> {
        let line = self
            .exchange(&Request::ask_line(ask))
            .map_err(|error| self.broken(error))?;
        let garbled = |source| ClientError::Garbled { ask, source };
        let envelope: Envelope<T> = serde_json::from_slice(&line).map_err(garbled)?;
        match (envelope.answer, envelope.error) {
            (Some(answer), _) => Ok(answer),
            (None, message) => Err(ClientError::Refused {
                ask,
                message: message.unwrap_or_else(|| "it said nothing".to_owned()),
            }),
        }
    }

    fn exchange(&mut self, question: &[u8]) -> io::Result<Vec<u8>> {
        let deadline = Instant::now() + self.patience;
        self.stream.set_write_timeout(Some(remaining(deadline)?))?;
        self.stream.write_all(question)?;
        let mut line = std::mem::take(&mut self.rest);
        let mut chunk = [0; 8192];
        let mut searched = 0;
        loop {
            if let Some(at) = line[searched..].iter().position(|byte| *byte == b'\n') {
                self.rest = line.split_off(searched + at + 1);
                return Ok(line);
            }
            searched = line.len();
            if searched > MAX_ANSWER_BYTES {
                return Err(io::Error::new(
                    ErrorKind::InvalidData,
                    format!("the answer has more than {MAX_ANSWER_BYTES} bytes"),
                ));
            }
            self.stream.set_read_timeout(Some(remaining(deadline)?))?;
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => line.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn broken(&self, source: io::Error) -> ClientError {
        match source.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => late(&self.path, self.patience),
            _ => ClientError::Broken {
                path: self.path.clone(),
                source,
            },
        }
    }
}

fn late(path: &Path, patience: Duration) -> ClientError {
    ClientError::Late {
        path: path.to_owned(),
        patience,
    }
}

fn remaining(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    // For the kernel, no time is as long as it takes.
    if left.is_zero() {
        return Err(ErrorKind::TimedOut.into());
    }
    Ok(left)
}

#[cfg(test)]
mod tests;
