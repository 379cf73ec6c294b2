//! Atomic changes of sets and maps.

use std::thread;
use std::time::{Duration, SystemTime};

use rustix::io::Errno;

use super::set::write_list;
use super::{Element, SUBSYSTEM, Set, message};
use crate::netlink::{Batch, Writer, flag};
use crate::{NetError, Socket};

const NFNL_MSG_BATCH_BEGIN: u16 = 16;
const NFNL_MSG_BATCH_END: u16 = 17;
const NFNL_BATCH_GENID: u16 = 1;
/// The ruleset has another generation than the transaction.
const ERESTART: i32 = 85;
/// A reply repeats its request, and both must fit into the receive buffer.
const ELEMENTS_PER_MESSAGE: usize = 16;

/// Attempts at a change that concurrent changes outdate.
const MAX_ATTEMPTS: u32 = 1000;
const FIRST_BACKOFF: Duration = Duration::from_micros(50);
/// The backoff grows to 13 ms.
const MAX_DOUBLINGS: u32 = 8;

/// What to do about an existing element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Reject the transaction: `EEXIST`.
    Reject,
    /// Accept the same element; the same key with another value is `EEXIST`, or `EBUSY` in old
    /// kernels.
    AcceptSame,
}

/// Changes of sets and maps that the kernel applies as a whole or not at all.
#[derive(Debug)]
pub struct Transaction {
    batch: Batch,
}

impl Transaction {
    /// For changes that do not depend on the present elements.
    pub fn new() -> Self {
        Self::begin(None)
    }

    /// For changes that the kernel rejects if the ruleset has changed since this [`generation`].
    ///
    /// [`generation`]: super::generation
    pub fn at(generation: u32) -> Self {
        Self::begin(Some(generation))
    }

    fn begin(generation: Option<u32>) -> Self {
        let mut batch = Batch::new();
        let attempt = "change the nftables ruleset";
        batch.add(NFNL_MSG_BATCH_BEGIN, 0, attempt, |message| {
            write_frame(message);
            if let Some(generation) = generation {
                message.u32_be(NFNL_BATCH_GENID, generation);
            }
        });
        Self { batch }
    }

    /// Adds elements to a set or map.
    pub fn add(&mut self, set: Set<'_>, elements: &[Element], existing: Existing) {
        let flags = match existing {
            Existing::Reject => flag::CREATE | flag::EXCL,
            Existing::AcceptSame => flag::CREATE,
        };
        for some in elements.chunks(ELEMENTS_PER_MESSAGE) {
            let attempt = format!("add to {set}");
            self.batch
                .add(message::NEWSETELEM, flags, attempt, |message| {
                    write_list(message, set, some);
                });
        }
    }

    /// Deletes elements by their keys. A missing one rejects the transaction: `ENOENT`.
    pub fn delete(&mut self, set: Set<'_>, elements: &[Element]) {
        for some in elements.chunks(ELEMENTS_PER_MESSAGE) {
            let attempt = format!("delete from {set}");
            self.batch.add(message::DELSETELEM, 0, attempt, |message| {
                write_list(message, set, some);
            });
        }
    }

    /// Whether it has no changes.
    pub fn is_empty(&self) -> bool {
        self.batch.len() == 1
    }

    /// Applies the changes; returns the first error.
    pub fn commit(mut self, socket: &Socket) -> Result<(), NetError> {
        if self.is_empty() {
            return Ok(());
        }
        let attempt = "change the nftables ruleset";
        self.batch.add(NFNL_MSG_BATCH_END, 0, attempt, write_frame);
        socket.enable_ext_ack()?;
        socket.transact(&mut self.batch)
    }
}

impl Default for Transaction {
    fn default() -> Self {
        Self::new()
    }
}

/// Applies a change that depends on the present elements: `attempt` reads the [`generation`], then the
/// elements, and commits a transaction for that generation. Retries with backoff while concurrent
/// changes outdate it.
///
/// [`generation`]: super::generation
pub fn retry_outdated(mut attempt: impl FnMut() -> Result<(), NetError>) -> Result<(), NetError> {
    let mut attempts = 0;
    loop {
        match attempt() {
            Err(error) if is_outdated(&error) && attempts < MAX_ATTEMPTS => {}
            outcome => return outcome,
        }
        thread::sleep(backoff(attempts));
        attempts += 1;
    }
}

/// Exponential backoff with full jitter.
fn backoff(attempts: u32) -> Duration {
    let limit = FIRST_BACKOFF * (1 << attempts.min(MAX_DOUBLINGS));
    let nanoseconds = SystemTime::UNIX_EPOCH
        .elapsed()
        .map_or(0, |now| now.subsec_nanos());
    // The last digits of the clock differ between processes.
    limit * (nanoseconds / 10 % 1000) / 1000
}

/// Whether the kernel rejected a transaction because the ruleset has changed since its generation.
pub fn is_outdated(error: &NetError) -> bool {
    error.is(Errno::from_raw_os_error(ERESTART))
}

/// `struct nfgenmsg` of the first and the last message of a transaction.
fn write_frame(message: &mut Writer<'_>) {
    const AF_UNSPEC: u8 = 0;
    message.fixed(&[AF_UNSPEC, 0]);
    message.fixed(&SUBSYSTEM.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejection(errno: i32) -> NetError {
        NetError::Rejected {
            attempt: "test".to_owned(),
            errno: Errno::from_raw_os_error(errno),
            message: String::new(),
        }
    }

    #[test]
    fn only_outdated_transactions_are_retried() {
        let mut outcomes = vec![Ok(()), Err(rejection(ERESTART)), Err(rejection(ERESTART))];
        retry_outdated(|| outcomes.pop().unwrap()).unwrap();
        assert!(outcomes.is_empty());
        let mut count = 0;
        let other = retry_outdated(|| {
            count += 1;
            Err(rejection(2))
        });
        assert!(other.unwrap_err().is(Errno::NOENT));
        assert_eq!(count, 1);
    }

    #[test]
    fn backoff_is_bounded() {
        for attempts in 0..MAX_ATTEMPTS {
            assert!(backoff(attempts) < Duration::from_millis(13));
        }
        assert!(backoff(0) < FIRST_BACKOFF);
    }
}
