//! A netlink socket: batches go in, answers come out.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send,
    socket_with,
};

use crate::NetError;
use crate::netlink::{Batch, Message, Writer, attributes, flag, messages, text_of};

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// The pieces of a dump are as large as what is received at once, or `NLMSG_GOODSIZE`, which is less.
const RECEIVE_LEN: usize = 8 * 1024;
/// An answer to a batch is a number and, at most, the request once more and a sentence.
const ANSWER_LEN: usize = 4096;
/// `NLM_F_CAPPED`: the answer doesn't repeat the request.
const CAPPED: u16 = 0x100;
/// `NLMSGERR_ATTR_MSG`: the kernel's own words.
const ATTR_MSG: u16 = 1;
/// How often a dump is begun anew when things change under it.
const MAX_DUMPS: usize = 10;
/// `NLM_F_DUMP_INTR`: things changed while the kernel was listing them.
const DUMP_INTR: u16 = 0x10;

/// Whether the kernel refused a request with an error that was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tolerated {
    /// It took all of them.
    Nothing,
    /// It refused one or more.
    Something,
}

/// A socket to the kernel, in the namespace that the thread was in when it was opened.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
}

impl Socket {
    /// For links, addresses, routes and so on.
    pub fn route() -> Result<Self, NetError> {
        let socket = Self::open(None)?;
        socket.ask_for_words()?;
        Ok(socket)
    }

    /// For nftables and conntrack.
    pub fn netfilter() -> Result<Self, NetError> {
        Self::open(Some(netlink::NETFILTER))
    }

    /// For what has no kind of socket of its own: ethtool, say.
    pub(crate) fn generic() -> Result<Self, NetError> {
        let socket = Self::open(Some(netlink::GENERIC))?;
        socket.ask_for_words()?;
        Ok(socket)
    }

    /// Makes the kernel say why it refuses something. For nftables that is done by whoever has
    /// something to be refused: to most calls, it is only a question whether all is there.
    pub(crate) fn ask_for_words(&self) -> Result<(), NetError> {
        set_ext_ack(&self.fd).map_err(NetError::talk("ask netlink for words"))
    }

    fn open(protocol: Option<Protocol>) -> Result<Self, NetError> {
        let fd = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            protocol,
        )
        .map_err(NetError::talk("open a netlink socket"))?;
        Ok(Self { fd })
    }

    /// Has the kernel take all of the requests; fails with the first one that it refused.
    ///
    /// The others have been taken nevertheless.
    pub fn send(&self, mut batch: Batch) -> Result<(), NetError> {
        let last = batch.len().saturating_sub(1);
        self.converse(&mut batch, last).map(drop)
    }

    /// As [`Socket::send`]; tells whether there was an error that the batch tolerates.
    pub fn send_tolerant(&self, mut batch: Batch) -> Result<Tolerated, NetError> {
        let last = batch.len().saturating_sub(1);
        self.converse(&mut batch, last)
    }

    /// As [`Socket::send`], with the answer asked for by request number `answering`.
    pub(crate) fn converse(
        &self,
        batch: &mut Batch,
        answering: usize,
    ) -> Result<Tolerated, NetError> {
        let mut tolerated = Tolerated::Nothing;
        if batch.is_empty() {
            return Ok(tolerated);
        }
        self.write(batch.acknowledged_by(answering))?;
        let mut refused: Option<(usize, NetError)> = None;
        let mut bytes = [0; ANSWER_LEN];
        loop {
            let length = self.read(&mut bytes)?;
            let mut is_answered = false;
            for message in messages(&bytes[..length]) {
                let index = usize::try_from(message.sequence).map_or(0, |s| s.saturating_sub(1));
                is_answered |= index >= answering;
                let Some((errno, words)) = complaint(&message) else {
                    continue;
                };
                let Some(attempt) = batch.complaint(index, errno) else {
                    tolerated = Tolerated::Something;
                    continue;
                };
                if refused.as_ref().is_none_or(|(earlier, _)| index < *earlier) {
                    let error = NetError::Refused {
                        attempt,
                        errno,
                        words,
                    };
                    refused = Some((index, error));
                }
            }
            if is_answered {
                return refused.map_or(Ok(tolerated), |(_, error)| Err(error));
            }
        }
    }

    /// Has netfilter take all of the requests, or none of them.
    ///
    /// The first request is what begins the transaction, and the last is what ends it: complaints
    /// about the transaction as a whole are about the first, and old kernels never answer to the
    /// last.
    pub(crate) fn transact(&self, batch: &mut Batch) -> Result<(), NetError> {
        let answering = batch.len().saturating_sub(2);
        self.write(batch.acknowledged_by(answering))?;
        let mut refused: Option<(usize, NetError)> = None;
        let mut is_answered = false;
        let mut bytes = [0; ANSWER_LEN];
        // The kernel answers within `send`. Taken are all answers, because the next conversation
        // would take one that is left for its own.
        loop {
            let length = match recv(&self.fd, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((length, _)) => length,
                // The complaints were more than the socket holds: the others are enough.
                Err(Errno::INTR | Errno::NOBUFS) => continue,
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(NetError::talk("receive from netlink")(errno)),
            };
            for message in messages(&bytes[..length]) {
                is_answered = true;
                let index = usize::try_from(message.sequence).map_or(0, |s| s.saturating_sub(1));
                if let Some((errno, words)) = complaint(&message)
                    && let Some(attempt) = batch.complaint(index, errno)
                    && refused.as_ref().is_none_or(|(earlier, _)| index < *earlier)
                {
                    let error = NetError::Refused {
                        attempt,
                        errno,
                        words,
                    };
                    refused = Some((index, error));
                }
            }
        }
        match refused {
            Some((_, error)) => Err(error),
            None if is_answered => Ok(()),
            None => Err(NetError::talk("hear from netfilter")(Errno::NOMSG)),
        }
    }

    /// The kernel's answer to a question about one thing.
    pub(crate) fn ask<T>(
        &self,
        kind: u16,
        attempt: &str,
        write: impl FnOnce(&mut Writer<'_>),
        read: impl FnOnce(&Message<'_>) -> Option<T>,
    ) -> Result<Option<T>, NetError> {
        self.ask_into(&mut [0; RECEIVE_LEN], kind, attempt, write, read)
    }

    /// As [`Socket::ask`], for an answer that may fill `bytes`.
    pub(crate) fn ask_into<T>(
        &self,
        bytes: &mut [u8],
        kind: u16,
        attempt: &str,
        write: impl FnOnce(&mut Writer<'_>),
        read: impl FnOnce(&Message<'_>) -> Option<T>,
    ) -> Result<Option<T>, NetError> {
        let mut batch = Batch::new();
        batch.add(kind, 0, attempt, write);
        self.write(batch.acknowledged_by(usize::MAX))?;
        let length = self.read(bytes)?;
        let Some(message) = messages(&bytes[..length]).next() else {
            return Ok(None);
        };
        match complaint(&message) {
            Some((errno, words)) => Err(NetError::Refused {
                attempt: attempt.to_owned(),
                errno,
                words,
            }),
            None => Ok(read(&message)),
        }
    }

    /// Everything of a kind, as far as `read` makes something of it.
    pub(crate) fn dump<T>(
        &self,
        kind: u16,
        attempt: &str,
        write: impl Fn(&mut Writer<'_>),
        mut read: impl FnMut(&Message<'_>) -> Option<T>,
    ) -> Result<Vec<T>, NetError> {
        for _ in 0..MAX_DUMPS {
            let mut batch = Batch::new();
            batch.add(kind, flag::DUMP, attempt, &write);
            self.write(batch.acknowledged_by(usize::MAX))?;
            if let Some(found) = self.read_dump(attempt, &mut read)? {
                return Ok(found);
            }
        }
        Err(NetError::Refused {
            attempt: attempt.to_owned(),
            errno: Errno::INTR,
            words: "it changes faster than it can be listed".to_owned(),
        })
    }

    /// `None` if things changed meanwhile.
    fn read_dump<T>(
        &self,
        attempt: &str,
        read: &mut impl FnMut(&Message<'_>) -> Option<T>,
    ) -> Result<Option<Vec<T>>, NetError> {
        let mut found = Vec::new();
        let mut is_whole = true;
        let mut bytes = [0; RECEIVE_LEN];
        loop {
            let length = self.read(&mut bytes)?;
            for message in messages(&bytes[..length]) {
                is_whole &= message.flags & DUMP_INTR == 0;
                // A dump that breaks off ends like one that is whole, but with an error's number.
                if message.kind == NLMSG_DONE && code_of(&message).is_none_or(|code| code >= 0) {
                    return Ok(is_whole.then_some(found));
                }
                if let Some((errno, words)) = complaint(&message) {
                    return Err(NetError::Refused {
                        attempt: attempt.to_owned(),
                        errno,
                        words,
                    });
                }
                found.extend(read(&message));
            }
        }
    }

    fn write(&self, bytes: &[u8]) -> Result<(), NetError> {
        send(&self.fd, bytes, SendFlags::empty())
            .map(drop)
            .map_err(NetError::talk("send to netlink"))
    }

    fn read(&self, bytes: &mut [u8]) -> Result<usize, NetError> {
        loop {
            match recv(&self.fd, &mut *bytes, RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                received => {
                    return received
                        .map(|(length, _)| length)
                        .map_err(NetError::talk("receive from netlink"));
                }
            }
        }
    }
}

/// The number at the beginning of an answer or of a dump's end: an error's is below zero.
fn code_of(message: &Message<'_>) -> Option<i32> {
    Some(i32::from_ne_bytes(
        message.payload.get(..4)?.try_into().ok()?,
    ))
}

/// What a message complains about, if it does.
fn complaint(message: &Message<'_>) -> Option<(Errno, String)> {
    let code = code_of(message)?;
    if message.kind == NLMSG_DONE && code < 0 {
        return Some((Errno::from_raw_os_error(-code), String::new()));
    }
    if message.kind != NLMSG_ERROR || code == 0 {
        return None;
    }
    // After the number comes the request that was refused, whole unless the answer is capped.
    let request_len = match message.flags & CAPPED {
        0 => u32::from_ne_bytes(message.payload.get(4..8)?.try_into().ok()?),
        _ => 16,
    };
    let start = 4 + usize::try_from(request_len).ok()?.next_multiple_of(4);
    let mut details = attributes(message.payload.get(start..).unwrap_or_default());
    let words = details
        .find_map(|(kind, payload)| (kind == ATTR_MSG).then(|| text_of(payload)))
        .unwrap_or_default();
    Some((Errno::from_raw_os_error(-code), words))
}

/// Sets `NETLINK_EXT_ACK`.
#[expect(unsafe_code, reason = "rustix has no call for this option")]
fn set_ext_ack(socket: &OwnedFd) -> io::Result<()> {
    const LENGTH: libc::socklen_t = 4;
    let on: i32 = 1;
    // SAFETY: the descriptor is open, and the value is an int that outlives the call.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_NETLINK,
            libc::NETLINK_EXT_ACK,
            (&raw const on).cast(),
            LENGTH,
        )
    };
    if outcome == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}
