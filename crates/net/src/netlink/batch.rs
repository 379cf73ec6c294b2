//! Writes netlink messages, several in one buffer, and splits received ones.
//!
//! A message is a header, a fixed part that depends on its kind, and attributes that may nest.
//! <https://docs.kernel.org/userspace-api/netlink/intro.html>

use rustix::io::Errno;

use crate::Mac;

/// Flags of `struct nlmsghdr`, `include/uapi/linux/netlink.h`.
pub(crate) mod flag {
    pub(crate) const REQUEST: u16 = 0x1;
    pub(crate) const ACK: u16 = 0x4;
    pub(crate) const DUMP: u16 = 0x300;
    pub(crate) const REPLACE: u16 = 0x100;
    pub(crate) const EXCL: u16 = 0x200;
    pub(crate) const CREATE: u16 = 0x400;
    pub(crate) const APPEND: u16 = 0x800;
}

const HEADER_LEN: usize = 16;
const NLA_F_NESTED: u16 = 0x8000;

/// Requests that go to the kernel in one system call. The kernel handles them in order, and continues
/// after one that it rejects.
#[derive(Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    requests: Vec<Request>,
}

#[derive(Debug)]
struct Request {
    start: usize,
    attempt: String,
    tolerated: &'static [Errno],
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Self {
            bytes: Vec::with_capacity(2048),
            requests: Vec::with_capacity(16),
        }
    }

    /// Whether it has no requests.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Errors of the last added request that count as success.
    pub fn tolerating(&mut self, errors: &'static [Errno]) {
        if let Some(request) = self.requests.last_mut() {
            request.tolerated = errors;
        }
    }

    /// Adds a request; `write` writes all after the header.
    pub(crate) fn add(
        &mut self,
        kind: u16,
        flags: u16,
        attempt: impl Into<String>,
        write: impl FnOnce(&mut Writer<'_>),
    ) {
        let start = self.bytes.len();
        self.requests.push(Request {
            start,
            attempt: attempt.into(),
            tolerated: &[],
        });
        let sequence = u32::try_from(self.requests.len()).unwrap_or(u32::MAX);
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes
            .extend_from_slice(&(flag::REQUEST | flags).to_ne_bytes());
        self.bytes.extend_from_slice(&sequence.to_ne_bytes());
        self.bytes.extend_from_slice(&[0; 4]);
        write(&mut Writer {
            bytes: &mut self.bytes,
        });
        let length = u32::try_from(self.bytes.len() - start).unwrap_or(u32::MAX);
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// The bytes, with `NLM_F_ACK` set on request number `index`.
    pub(crate) fn with_ack_on(&mut self, index: usize) -> &[u8] {
        if let Some(request) = self.requests.get(index) {
            let at = request.start + 6;
            let flags = u16::from_ne_bytes([self.bytes[at], self.bytes[at + 1]]) | flag::ACK;
            self.bytes[at..at + 2].copy_from_slice(&flags.to_ne_bytes());
        }
        &self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    /// What request number `index` attempted, unless it tolerates this error.
    pub(crate) fn failed_attempt(&self, index: usize, errno: Errno) -> Option<String> {
        match self.requests.get(index) {
            Some(request) if request.tolerated.contains(&errno) => None,
            Some(request) => Some(request.attempt.clone()),
            None => Some("send to netlink".to_owned()),
        }
    }
}

/// Writes the part of a message that comes after its header.
pub(crate) struct Writer<'a> {
    bytes: &'a mut Vec<u8>,
}

impl Writer<'_> {
    /// Appends to the fixed part.
    pub(crate) fn fixed(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn attribute(&mut self, kind: u16, payload: &[u8]) {
        self.nest_plain(kind, |writer| writer.fixed(payload));
    }

    pub(crate) fn u8(&mut self, kind: u16, value: u8) {
        self.attribute(kind, &[value]);
    }

    pub(crate) fn u32(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_ne_bytes());
    }

    /// Netfilter uses network byte order.
    pub(crate) fn u16_be(&mut self, kind: u16, value: u16) {
        self.attribute(kind, &value.to_be_bytes());
    }

    pub(crate) fn u32_be(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_be_bytes());
    }

    pub(crate) fn mac(&mut self, kind: u16, mac: Mac) {
        self.attribute(kind, &mac.octets());
    }

    /// A NUL-terminated string.
    pub(crate) fn text(&mut self, kind: u16, text: &str) {
        self.nest_plain(kind, |writer| {
            writer.fixed(text.as_bytes());
            writer.fixed(&[0]);
        });
    }

    /// An attribute that holds attributes.
    pub(crate) fn nest(&mut self, kind: u16, write: impl FnOnce(&mut Writer<'_>)) {
        self.nest_plain(kind | NLA_F_NESTED, write);
    }

    /// As [`Writer::nest`], without `NLA_F_NESTED`, which older attributes must not have.
    pub(crate) fn nest_plain(&mut self, kind: u16, write: impl FnOnce(&mut Writer<'_>)) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 2]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        write(&mut Writer { bytes: self.bytes });
        let length = u16::try_from(self.bytes.len() - start).unwrap_or(u16::MAX);
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// A message from the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    pub(crate) payload: &'a [u8],
}

/// Splits a received datagram into messages.
pub(crate) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let header = bytes.get(..HEADER_LEN)?;
        let number = |at: usize| {
            u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let length = usize::try_from(number(0)).ok()?;
        let payload = bytes.get(HEADER_LEN..length)?;
        let message = Message {
            kind: u16::from_ne_bytes([header[4], header[5]]),
            flags: u16::from_ne_bytes([header[6], header[7]]),
            sequence: number(8),
            payload,
        };
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}
