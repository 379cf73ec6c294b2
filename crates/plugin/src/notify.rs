//! Tells the daemon how a call went.
//!
//! A pod never waits for it: what the daemon can't take at once goes to a file that it reads later,
//! and what that can't take is lost. The daemon finds out by itself what it was not told; and where
//! no daemon is, nothing is done. An event says nothing of a configuration, and of `CNI_ARGS` only
//! which pod it is: anything else may be a secret.

mod event;
mod spool;

use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

use api::event::Event;
use api::messages::{Request, SPOOL_NAME};
use api::paths;
use cni::{Call, Error, Keys};
use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send, socket_with,
};

use crate::conf::{optional_for_cleanup, path_setting};
pub(crate) use event::event;

const KEY: &str = "daemon_socket";
const VARIABLE: &str = "HEADCNI_DAEMON_SOCKET";

/// Where the daemon is, if there is one.
#[derive(Debug, PartialEq)]
pub(crate) struct Daemon {
    socket: PathBuf,
    presence: Presence,
}

#[derive(Debug, PartialEq)]
enum Presence {
    /// Somebody said where it is, so there will be one.
    Expected,
    /// There is one, or will be again, if it has left its socket there. The directory alone says
    /// nothing: a person may have put a file there.
    Unsure,
}

impl Daemon {
    /// Where `daemon_socket` or the environment says, else where it always is.
    pub(crate) fn of_call(call: &Call) -> Result<Self, Error> {
        let nobody_says = Self {
            socket: PathBuf::from(paths::DAEMON_SOCKET),
            presence: Presence::Unsure,
        };
        let keys = Keys::new(call.conf.keys(), "");
        if keys.value(KEY).is_none() && matches!(call.env.get(VARIABLE), Ok(None)) {
            return Ok(nobody_says);
        }
        let named = path_setting(call, keys, KEY, VARIABLE, "").and_then(|socket| {
            if SocketAddrUnix::new(&socket).is_err() {
                return Err(Error::config(format!(
                    "{KEY} {:?} is longer than the path of a socket can be: 107 bytes",
                    socket.display()
                )));
            }
            Ok(Self {
                socket,
                presence: Presence::Expected,
            })
        });
        optional_for_cleanup(call, named, nobody_says)
    }

    /// Tells it, if there is one. That nothing comes of it is no trouble of the call.
    pub(crate) fn tell(&self, event: impl FnOnce() -> Event) {
        let is_there = || access(&self.socket, Access::EXISTS) != Err(Errno::NOENT);
        if self.presence == Presence::Unsure && !is_there() {
            return;
        }
        let Some(line) = Request::event_line(&event()) else {
            return;
        };
        if say(&self.socket, &line).is_err() {
            // There is nobody left to tell that this has failed, too.
            let _ = spool::add(&self.socket.with_file_name(SPOOL_NAME), &line);
        }
    }
}

/// Says a line on a socket, unless that would mean to wait.
fn say(path: &Path, line: &[u8]) -> Result<(), Errno> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // The process ends in a moment, and closes it then.
    let socket = ManuallyDrop::new(socket);
    connect(&*socket, &address)?;
    match send(&*socket, line, SendFlags::NOSIGNAL)? {
        said if said == line.len() => Ok(()),
        // Nobody listens to half a line.
        _ => Err(Errno::AGAIN),
    }
}

#[cfg(test)]
mod tests;
