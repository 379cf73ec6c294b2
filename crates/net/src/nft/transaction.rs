//! Changes to sets and maps that are made all at once or not at all.

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
/// The ruleset is not of the generation that the transaction was made for.
const ERESTART: i32 = 85;
/// An answer repeats the message that it is about, and has to fit into what we receive at a time.
const ELEMENTS_PER_MESSAGE: usize = 16;

/// How often a change is planned anew because the ruleset has changed meanwhile.
const MAX_ROUNDS: u32 = 1000;
const FIRST_PAUSE: Duration = Duration::from_micros(50);
/// Pauses end at 13 ms.
const MAX_DOUBLINGS: u32 = 8;

/// What is to be done about an element that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// The transaction is refused: `EEXIST`.
    Refuse,
    /// The same element is fine; the same key with another value is refused: `EEXIST`, or `EBUSY`
    /// by old kernels.
    AcceptSame,
}

/// Changes to sets and maps that are made all at once or not at all.
#[derive(Debug)]
pub struct Transaction {
    batch: Batch,
}

impl Transaction {
    /// Changes that do not depend on what was read before.
    pub fn new() -> Self {
        Self::begin(None)
    }

    /// Changes that are refused if anything has changed since this [`generation`].
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
            Existing::Refuse => flag::CREATE | flag::EXCL,
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

    /// Deletes elements by their keys, whatever their values. One that is missing has the whole
    /// transaction refused: `ENOENT`.
    pub fn delete(&mut self, set: Set<'_>, elements: &[Element]) {
        for some in elements.chunks(ELEMENTS_PER_MESSAGE) {
            let attempt = format!("delete from {set}");
            self.batch.add(message::DELSETELEM, 0, attempt, |message| {
                write_list(message, set, some);
            });
        }
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.batch.len() == 1
    }

    /// Makes the changes; fails with the first one that the kernel refused.
    pub fn commit(mut self, socket: &Socket) -> Result<(), NetError> {
        if self.is_empty() {
            return Ok(());
        }
        let attempt = "change the nftables ruleset";
        self.batch.add(NFNL_MSG_BATCH_END, 0, attempt, write_frame);
        socket.ask_for_words()?;
        socket.transact(&mut self.batch)
    }
}

impl Default for Transaction {
    fn default() -> Self {
        Self::new()
    }
}

/// Makes a change that depends on what was read before: `attempt` asks for the [`generation`],
/// reads, and commits a transaction for that generation. It is called again as long as somebody
/// else was faster, with pauses, so that of many all get through.
///
/// [`generation`]: super::generation
pub fn retry_outdated(mut attempt: impl FnMut() -> Result<(), NetError>) -> Result<(), NetError> {
    let mut round = 0;
    loop {
        match attempt() {
            Err(error) if is_outdated(&error) && round < MAX_ROUNDS => {}
            outcome => return outcome,
        }
        thread::sleep(pause(round));
        round += 1;
    }
}

/// A time by chance, longer on average the more often it was in vain.
fn pause(round: u32) -> Duration {
    let limit = FIRST_PAUSE * (1 << round.min(MAX_DOUBLINGS));
    let nanoseconds = SystemTime::UNIX_EPOCH
        .elapsed()
        .map_or(0, |now| now.subsec_nanos());
    // The clock's last digits differ from process to process.
    limit * (nanoseconds / 10 % 1000) / 1000
}

/// Whether a transaction was refused because the ruleset has changed since its generation.
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

    fn refusal(errno: i32) -> NetError {
        NetError::Refused {
            attempt: "test".to_owned(),
            errno: Errno::from_raw_os_error(errno),
            words: String::new(),
        }
    }

    #[test]
    fn what_is_outdated_is_tried_again_and_nothing_else() {
        let mut outcomes = vec![Ok(()), Err(refusal(ERESTART)), Err(refusal(ERESTART))];
        retry_outdated(|| outcomes.pop().unwrap()).unwrap();
        assert!(outcomes.is_empty());
        let mut count = 0;
        let other = retry_outdated(|| {
            count += 1;
            Err(refusal(2))
        });
        assert!(other.unwrap_err().is(Errno::NOENT));
        assert_eq!(count, 1);
    }

    #[test]
    fn pauses_are_bounded() {
        for round in 0..MAX_ROUNDS {
            assert!(pause(round) < Duration::from_millis(13));
        }
        assert!(pause(0) < FIRST_PAUSE);
    }
}
