//! Netlink sockets.

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
/// No datagram of a dump is larger: `NLMSG_GOODSIZE` is less.
const RECEIVE_LEN: usize = 8 * 1024;
/// A reply to a batch is an error number and at most the request again and a message.
const REPLY_LEN: usize = 4096;
/// `NLM_F_CAPPED`: the reply does not repeat the request.
const CAPPED: u16 = 0x100;
/// `NLMSGERR_ATTR_MSG`
const ATTR_MSG: u16 = 1;
/// Attempts at a dump that changes interrupt.
const MAX_DUMPS: usize = 10;
/// `NLM_F_DUMP_INTR`: the listed objects changed during the dump.
const DUMP_INTR: u16 = 0x10;

/// Whether the kernel rejected a request with an error that the batch tolerates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tolerated {
    /// No request was rejected.
    Nothing,
    /// At least one was.
    Something,
}

/// A netlink socket of the netns that the thread was in when it opened the socket.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
}

impl Socket {
    /// rtnetlink: links, addresses, routes and so on.
    pub fn route() -> Result<Self, NetError> {
        let socket = Self::open(None)?;
        socket.enable_ext_ack()?;
        Ok(socket)
    }

    /// nftables and conntrack.
    pub fn netfilter() -> Result<Self, NetError> {
        Self::open(Some(netlink::NETFILTER))
    }

    /// Generic netlink, for example ethtool.
    pub(crate) fn generic() -> Result<Self, NetError> {
        let socket = Self::open(Some(netlink::GENERIC))?;
        socket.enable_ext_ack()?;
        Ok(socket)
    }

    /// Makes the kernel explain errors. nftables transactions enable it themselves: most plugin calls
    /// only query, and save the system call.
    pub(crate) fn enable_ext_ack(&self) -> Result<(), NetError> {
        set_ext_ack(&self.fd).map_err(NetError::io("set NETLINK_EXT_ACK"))
    }

    fn open(protocol: Option<Protocol>) -> Result<Self, NetError> {
        let fd = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            protocol,
        )
        .map_err(NetError::io("open a netlink socket"))?;
        Ok(Self { fd })
    }

    /// Sends all requests; returns the first error. The kernel handles all requests in any case.
    pub fn send(&self, mut batch: Batch) -> Result<(), NetError> {
        self.exchange(&mut batch).map(drop)
    }

    /// As [`Socket::send`]; also returns whether there was an error that the batch tolerates.
    pub fn send_tolerant(&self, mut batch: Batch) -> Result<Tolerated, NetError> {
        self.exchange(&mut batch)
    }

    fn exchange(&self, batch: &mut Batch) -> Result<Tolerated, NetError> {
        if batch.is_empty() {
            return Ok(Tolerated::Nothing);
        }
        let last = batch.len() - 1;
        self.write(batch.with_ack_on(last))?;
        let mut replies = Replies::new(batch);
        let mut bytes = [0; REPLY_LEN];
        loop {
            let length = self.read(&mut bytes)?;
            if replies.collect(&bytes[..length]) >= Some(last) {
                return replies.outcome();
            }
        }
    }

    /// Sends a netfilter transaction, which the kernel applies as a whole or not at all.
    ///
    /// The first request begins the transaction and the last ends it. Errors of the transaction as a
    /// whole refer to the first, and old kernels never acknowledge the last.
    pub(crate) fn transact(&self, batch: &mut Batch) -> Result<(), NetError> {
        let answering = batch.len().saturating_sub(2);
        self.write(batch.with_ack_on(answering))?;
        let mut replies = Replies::new(batch);
        let mut is_answered = false;
        let mut bytes = [0; REPLY_LEN];
        // The kernel replies within `send`. All replies are read, because one that is left would be
        // taken for a reply to the next request.
        loop {
            match recv(&self.fd, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((length, _)) => is_answered |= replies.collect(&bytes[..length]).is_some(),
                // More errors than the socket holds: the others are enough.
                Err(Errno::INTR | Errno::NOBUFS) => {}
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(NetError::io("receive from netlink")(errno)),
            }
        }
        if !is_answered {
            return Err(NetError::io("receive from netfilter")(Errno::NOMSG));
        }
        replies.outcome().map(drop)
    }

    /// Queries one object.
    pub(crate) fn get<T>(
        &self,
        kind: u16,
        attempt: &str,
        write: impl FnOnce(&mut Writer<'_>),
        read: impl FnOnce(&Message<'_>) -> Option<T>,
    ) -> Result<Option<T>, NetError> {
        self.get_into(&mut [0; RECEIVE_LEN], kind, attempt, write, read)
    }

    /// As [`Socket::get`], with a buffer for a large reply.
    pub(crate) fn get_into<T>(
        &self,
        bytes: &mut [u8],
        kind: u16,
        attempt: &str,
        write: impl FnOnce(&mut Writer<'_>),
        read: impl FnOnce(&Message<'_>) -> Option<T>,
    ) -> Result<Option<T>, NetError> {
        let mut batch = Batch::new();
        batch.add(kind, 0, attempt, write);
        self.write(batch.with_ack_on(usize::MAX))?;
        let length = self.read(bytes)?;
        let Some(message) = messages(&bytes[..length]).next() else {
            return Ok(None);
        };
        match error_in(&message) {
            Some((errno, message)) => Err(NetError::Rejected {
                attempt: attempt.to_owned(),
                errno,
                message,
            }),
            None => Ok(read(&message)),
        }
    }

    /// Lists all objects for which `read` returns a value.
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
            self.write(batch.with_ack_on(usize::MAX))?;
            if let Some(found) = self.read_dump(attempt, &mut read)? {
                return Ok(found);
            }
        }
        Err(NetError::Rejected {
            attempt: attempt.to_owned(),
            errno: Errno::INTR,
            message: "it changes faster than the kernel lists it".to_owned(),
        })
    }

    /// `None` if objects changed during the dump.
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
                // An aborted dump ends with an error number.
                if message.kind == NLMSG_DONE && code_of(&message).is_none_or(|code| code >= 0) {
                    return Ok(is_whole.then_some(found));
                }
                if let Some((errno, message)) = error_in(&message) {
                    return Err(NetError::Rejected {
                        attempt: attempt.to_owned(),
                        errno,
                        message,
                    });
                }
                found.extend(read(&message));
            }
        }
    }

    fn write(&self, bytes: &[u8]) -> Result<(), NetError> {
        send(&self.fd, bytes, SendFlags::empty())
            .map(drop)
            .map_err(NetError::io("send to netlink"))
    }

    fn read(&self, bytes: &mut [u8]) -> Result<usize, NetError> {
        loop {
            match recv(&self.fd, &mut *bytes, RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                received => {
                    return received
                        .map(|(length, _)| length)
                        .map_err(NetError::io("receive from netlink"));
                }
            }
        }
    }
}

/// The replies to a batch, of which the error of the earliest request counts.
struct Replies<'a> {
    batch: &'a Batch,
    tolerated: Tolerated,
    rejected: Option<(usize, NetError)>,
}

impl<'a> Replies<'a> {
    fn new(batch: &'a Batch) -> Self {
        Self {
            batch,
            tolerated: Tolerated::Nothing,
            rejected: None,
        }
    }

    /// Takes the replies in a datagram; returns the latest request that one of them refers to.
    fn collect(&mut self, datagram: &[u8]) -> Option<usize> {
        let mut latest = None;
        for message in messages(datagram) {
            let index = usize::try_from(message.sequence).map_or(0, |s| s.saturating_sub(1));
            latest = latest.max(Some(index));
            let Some((errno, message)) = error_in(&message) else {
                continue;
            };
            let Some(attempt) = self.batch.failed_attempt(index, errno) else {
                self.tolerated = Tolerated::Something;
                continue;
            };
            let is_first = self
                .rejected
                .as_ref()
                .is_none_or(|(first, _)| index < *first);
            if is_first {
                let error = NetError::Rejected {
                    attempt,
                    errno,
                    message,
                };
                self.rejected = Some((index, error));
            }
        }
        latest
    }

    fn outcome(self) -> Result<Tolerated, NetError> {
        match self.rejected {
            Some((_, error)) => Err(error),
            None => Ok(self.tolerated),
        }
    }
}

/// The number at the start of a reply and of the end of a dump; below zero for errors.
fn code_of(message: &Message<'_>) -> Option<i32> {
    Some(i32::from_ne_bytes(
        message.payload.get(..4)?.try_into().ok()?,
    ))
}

/// The error in a message, if any.
fn error_in(message: &Message<'_>) -> Option<(Errno, String)> {
    let code = code_of(message)?;
    if message.kind == NLMSG_DONE && code < 0 {
        return Some((Errno::from_raw_os_error(-code), String::new()));
    }
    if message.kind != NLMSG_ERROR || code == 0 {
        return None;
    }
    // The rejected request follows, whole unless the reply is capped.
    let request_len = match message.flags & CAPPED {
        0 => u32::from_ne_bytes(message.payload.get(4..8)?.try_into().ok()?),
        _ => 16,
    };
    let start = 4 + usize::try_from(request_len).ok()?.next_multiple_of(4);
    let mut details = attributes(message.payload.get(start..).unwrap_or_default());
    let message = details
        .find_map(|(kind, payload)| (kind == ATTR_MSG).then(|| text_of(payload)))
        .unwrap_or_default();
    Some((Errno::from_raw_os_error(-code), message))
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
