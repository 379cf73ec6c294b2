//! The allocator in a real program, this one: threads, and memory that changes hands.

use std::alloc::System;
use std::hint::black_box;
use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;

use heap::{Profile, Sampled, sample, snapshot};

#[global_allocator]
static ALLOCATOR: Sampled<System> = Sampled::new(System);

const MIB: f64 = 1024.0 * 1024.0;
const FINE: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// A process has one book, and tests may be threads of one process.
fn alone() -> MutexGuard<'static, ()> {
    static BOOK: Mutex<()> = Mutex::new(());
    BOOK.lock().unwrap_or_else(PoisonError::into_inner)
}

#[inline(never)]
fn hoard(pieces: usize, size: usize) -> Vec<Vec<u8>> {
    (0..pieces)
        .map(|_| Vec::with_capacity(black_box(size)))
        .collect()
}

fn calls(frame: usize, function: &str) -> bool {
    let mut is_it = false;
    backtrace::resolve(std::ptr::without_provenance_mut(frame), |symbol| {
        is_it |= symbol
            .name()
            .is_some_and(|name| name.to_string().contains(function));
    });
    is_it
}

/// What is in use of a function's, and what it ever allocated, in MiB.
fn share_of(function: &str, profile: &Profile) -> (f64, f64) {
    let by_function = profile
        .stacks
        .iter()
        .filter(|stack| stack.frames.iter().any(|frame| calls(*frame, function)));
    by_function.fold((0.0, 0.0), |(live, ever), stack| {
        (
            live + stack.live_bytes / MIB,
            ever + stack.allocated_bytes / MIB,
        )
    })
}

fn share(function: &str) -> (f64, f64) {
    share_of(function, &snapshot().unwrap_or_default())
}

#[test]
fn what_is_kept_is_seen_and_what_is_freed_is_forgotten() {
    let _alone = alone();
    assert_eq!(snapshot(), None);
    let sampling = sample(FINE);
    let kept = hoard(8192, 1024);
    let freed = hoard(8192, 1024);
    drop(freed);
    let (live, ever) = share("hoard");
    // A standard deviation is 2 %.
    assert!((7.0..9.5).contains(&live), "{live} MiB in use");
    assert!((14.0..18.5).contains(&ever), "{ever} MiB in all");
    drop(kept);
    let (live, _) = share("hoard");
    assert!(live < 0.1, "{live} MiB in use");
    drop(sampling);
    assert_eq!(snapshot(), None);
}

#[test]
fn what_grows_is_seen_at_its_last_size() {
    #[inline(never)]
    fn swell(to: usize) -> Vec<u8> {
        let mut grown: Vec<u8> = Vec::with_capacity(1 << 10);
        while grown.capacity() < to {
            grown.reserve_exact(grown.capacity() * 2);
        }
        grown
    }
    #[inline(never)]
    fn cut_down(grown: &mut Vec<u8>, to: usize) {
        grown.shrink_to(to);
    }
    let _alone = alone();
    let _sampling = sample(FINE);
    let mut grown = swell(16 << 20);
    let (live, ever) = share("swell");
    assert!((15.9..16.1).contains(&live), "{live} MiB in use");
    assert!((31.0..33.0).contains(&ever), "{ever} MiB in all");
    cut_down(&mut grown, 1 << 20);
    let (live, _) = share("cut_down");
    assert!((0.9..1.1).contains(&live), "{live} MiB in use");
}

#[test]
fn threads_that_free_what_others_allocated_leave_nothing() {
    #[inline(never)]
    fn piece(round: usize) -> Vec<u8> {
        let mut piece = vec![0; 16 + round * 37 % 3000];
        if round.is_multiple_of(3) {
            piece.extend_from_slice(&[1; 700]);
        }
        piece
    }
    let _alone = alone();
    let _sampling = sample(FINE);
    thread::scope(|scope| {
        for _ in 0..4 {
            let (give, take) = mpsc::sync_channel::<Vec<u8>>(64);
            scope.spawn(move || (0..50_000).try_for_each(|round| give.send(piece(round))));
            scope.spawn(move || take.into_iter().for_each(drop));
        }
        // Somebody looks meanwhile, and somebody else switches on and off.
        scope.spawn(|| (0..50).for_each(|_| drop(black_box(snapshot()))));
        scope.spawn(|| (0..50).for_each(|_| drop(sample(FINE))));
    });
    let profile = snapshot().unwrap_or_default();
    assert_eq!(profile.lost, 0);
    let (live, ever) = share_of("piece", &profile);
    assert!(ever > 100.0, "{ever} MiB in all");
    assert!(live < 0.01, "{live} MiB in use");
}

#[test]
fn what_was_allocated_before_is_not_known_and_may_be_freed() {
    let _alone = alone();
    let before = hoard(4096, 1024);
    let sampling = sample(FINE);
    let between = hoard(4096, 1024);
    drop(before);
    drop(sampling);
    assert_eq!(snapshot(), None);
    let _again = sample(FINE);
    drop(between);
    let (live, ever) = share("hoard");
    assert!(live + ever < 0.001, "{live} MiB in use, {ever} in all");
}
