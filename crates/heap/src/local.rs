//! What each thread keeps for itself: how far it is to the next sample.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

/// It needs no start and no end, so it is there whenever a thread allocates.
pub(crate) struct Local {
    is_noting: Cell<bool>,
    is_exempt: Cell<bool>,
    bytes_per_sample: Cell<usize>,
    bytes_left: Cell<usize>,
    random: Cell<u64>,
}

impl Local {
    pub(crate) const fn new() -> Self {
        Self {
            is_noting: Cell::new(false),
            is_exempt: Cell::new(false),
            bytes_per_sample: Cell::new(0),
            bytes_left: Cell::new(0),
            random: Cell::new(0),
        }
    }

    /// Does what must not be sampled itself. Nothing is done if that is going on in this thread: it
    /// allocates meanwhile, or a signal has come and its handler does.
    pub(crate) fn alone<T>(&self, act: impl FnOnce() -> T) -> Option<T> {
        if self.is_noting.replace(true) {
            return None;
        }
        // A handler must see the mark whenever this thread has the lock.
        compiler_fence(Ordering::SeqCst);
        let outcome = act();
        compiler_fence(Ordering::SeqCst);
        self.is_noting.set(false);
        Some(outcome)
    }

    /// Does something whose allocations are not to be noted. What it frees is forgotten as ever.
    pub(crate) fn exempt<T>(&self, act: impl FnOnce() -> T) -> T {
        struct Until<'a>(&'a Cell<bool>, bool);
        impl Drop for Until<'_> {
            fn drop(&mut self) {
                self.0.set(self.1);
            }
        }
        let _until = Until(&self.is_exempt, self.is_exempt.replace(true));
        act()
    }

    /// Whether an allocation of so many bytes is one to note.
    ///
    /// The distances between samples are exponential, so it is so with a probability of
    /// 1 - e^(-size / `bytes_per_sample`), whatever was allocated before.
    pub(crate) fn is_due(&self, size: usize, bytes_per_sample: usize) -> bool {
        if self.is_exempt.get() {
            return false;
        }
        if self.bytes_per_sample.get() != bytes_per_sample {
            self.bytes_per_sample.set(bytes_per_sample);
            self.bytes_left.set(self.distance());
        }
        if let Some(left) = self.bytes_left.get().checked_sub(size) {
            self.bytes_left.set(left);
            return false;
        }
        self.bytes_left.set(self.distance());
        true
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a positive random number needs no exactness"
    )]
    fn distance(&self) -> usize {
        const STEPS: f64 = (1_u64 << 53) as f64;
        let above_zero = ((self.next_random() >> 11) + 1) as f64 / STEPS;
        (-above_zero.ln() * self.bytes_per_sample.get() as f64) as usize
    }

    /// xorshift64*. Nobody gains from guessing it.
    fn next_random(&self) -> u64 {
        static THREADS: AtomicU64 = AtomicU64::new(1);
        let mut state = self.random.get();
        if state == 0 {
            let thread = THREADS.fetch_add(1, Ordering::Relaxed);
            state = thread.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        }
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        self.random.set(state);
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_done_inside_itself() {
        let local = Local::new();
        assert_eq!(local.alone(|| local.alone(|| ())), Some(None));
        assert_eq!(local.alone(|| ()), Some(()));
    }

    #[test]
    fn allocations_are_due_as_often_as_their_size_demands() {
        let local = Local::new();
        for (size, bytes_per_sample, expected) in [
            (64, 4096, 0.0155),
            (4096, 4096, 0.6321),
            (65_536, 4096, 1.0),
        ] {
            let due = (0..100_000)
                .filter(|_| local.is_due(size, bytes_per_sample))
                .count();
            let share = f64::from(u32::try_from(due).unwrap_or(u32::MAX)) / 100_000.0;
            assert!((share / expected - 1.0).abs() < 0.15, "{size}: {share}");
        }
    }

    #[test]
    fn whoever_is_exempt_is_never_due_and_others_are_again() {
        let local = Local::new();
        let is_ever_due = || (0..1000).any(|_| local.is_due(100, 1));
        let nested = || {
            local.exempt(|| ());
            is_ever_due()
        };
        assert!(!local.exempt(nested));
        assert!(is_ever_due());
    }

    #[test]
    fn another_distance_holds_at_once() {
        let local = Local::new();
        assert!(!local.is_due(1, 1 << 40));
        assert!((0..1000).any(|_| local.is_due(1, 1)));
    }
}
