//! What an allocation does beside being one.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::book::{Book, Profile, Record};
use crate::live::Live;
use crate::local::Local;
use crate::stacks::MAX_FRAMES;
use crate::trace;

/// Zero if nobody samples.
static BYTES_PER_SAMPLE: AtomicUsize = AtomicUsize::new(0);
static LIVE: Live = Live::new();
static STATE: Mutex<State> = Mutex::new(State {
    samplings: 0,
    book: None,
});

struct State {
    samplings: usize,
    book: Option<Book>,
}

thread_local! {
    static LOCAL: Local = const { Local::new() };
}

/// Allocations are sampled while somebody has this.
#[derive(Debug)]
pub struct Sampling(());

/// Begins to sample, one allocation in so many bytes. If somebody samples already, it is their
/// distance that holds.
///
/// Only what [`Sampled`](crate::Sampled) allocates is seen: it has to be the program's allocator.
pub fn sample(bytes_per_sample: NonZeroUsize) -> Sampling {
    apart(|| {
        let mut state = state();
        state.samplings += 1;
        let wanted = bytes_per_sample.get();
        let book = state.book.get_or_insert_with(|| Book::new(wanted));
        BYTES_PER_SAMPLE.store(book.bytes_per_sample, Ordering::Relaxed);
    });
    Sampling(())
}

impl Drop for Sampling {
    fn drop(&mut self) {
        apart(|| {
            let mut state = state();
            state.samplings -= 1;
            if state.samplings == 0 {
                BYTES_PER_SAMPLE.store(0, Ordering::Relaxed);
                LIVE.clear();
                state.book = None;
            }
        });
    }
}

/// What is known, if somebody samples.
pub fn snapshot() -> Option<Profile> {
    apart(|| state().book.as_ref().map(|book| book.profile(&LIVE)))?
}

/// Does something that is not to be seen in a profile: what this thread allocates meanwhile is not
/// noted. Making a profile allocates much.
pub fn unseen<T>(act: impl FnOnce() -> T) -> T {
    LOCAL.with(|local| local.exempt(act))
}

/// Does what takes the lock and may allocate. Only a signal's handler can be refused, and none
/// comes here.
fn apart<T>(act: impl FnOnce() -> T) -> Option<T> {
    LOCAL.with(|local| local.alone(act))
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All that an allocation costs while nobody samples.
#[inline]
pub(crate) fn is_on() -> bool {
    BYTES_PER_SAMPLE.load(Ordering::Relaxed) != 0
}

/// Something was allocated.
#[inline(never)]
pub(crate) fn allocated(address: usize, size: usize) {
    LOCAL.with(|local| {
        let bytes_per_sample = BYTES_PER_SAMPLE.load(Ordering::Relaxed);
        if address != 0 && bytes_per_sample != 0 {
            local.alone(|| {
                if local.is_due(size, bytes_per_sample) {
                    note(address, size);
                }
            });
        }
    });
}

#[cold]
fn note(address: usize, size: usize) {
    let mut frames = [0; MAX_FRAMES];
    let depth = trace::capture(&mut frames);
    if let Some(book) = &mut state().book {
        book.note(
            &LIVE,
            address,
            size,
            frames.get(..depth).unwrap_or_default(),
        );
    }
}

/// Something is about to be freed.
#[inline(never)]
pub(crate) fn freed(address: usize) -> Option<Record> {
    LIVE.find(address)?;
    LOCAL.with(|local| local.alone(|| state().book.as_mut()?.take(&LIVE, address)))?
}

/// It was not freed after all.
#[cold]
pub(crate) fn kept(address: usize, record: Option<Record>) {
    let Some(record) = record else { return };
    apart(|| {
        if let Some(book) = &mut state().book {
            book.put(&LIVE, address, record);
        }
    });
}
