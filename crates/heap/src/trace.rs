//! The stack of this thread, as return addresses.

use crate::stacks::MAX_FRAMES;

/// Writes down who called, the innermost first, and says how many they are.
///
/// What unwinds is the C runtime's. If it allocates, it asks C's allocator, not the one that
/// is being sampled, and that one is not at work: an allocation is noted when it is done.
#[expect(
    unsafe_code,
    reason = "the safe one takes a lock that whoever allocates may hold"
)]
pub(crate) fn capture(frames: &mut [usize; MAX_FRAMES]) -> usize {
    let mut places = frames.iter_mut();
    // SAFETY: on Linux it may be called by several threads at a time; only Windows' own library for
    // debuggers asks for a lock. The closure doesn't panic.
    unsafe {
        backtrace::trace_unsynchronized(|frame| match places.next() {
            Some(place) => {
                *place = frame.ip().addr();
                true
            }
            None => false,
        });
    }
    MAX_FRAMES - places.len()
}
