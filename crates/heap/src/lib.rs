//! Who allocated the memory that is in use: an allocator that samples, for heap profiles.
//!
//! [`Sampled`] wraps the allocator of a program. While nobody samples, it costs a load and a branch
//! per call. While a [`Sampling`] lives, one allocation for so and so many bytes is noted with its
//! stack, and forgotten when it is freed; [`snapshot`] says what is live. What was allocated before
//! is not known.
//!
//! The book has a fixed size, about 1 MiB, and is given back when nobody samples. Nothing here
//! allocates while an allocation is being noted, panics, or knows the name of a function.
//!
//! After a `fork`, the child must not allocate before it executes another program, as ever where there are
//! threads: another one may have been at the book.

mod book;
mod hook;
mod live;
mod local;
mod stacks;
mod trace;

use std::alloc::{GlobalAlloc, Layout, System};

pub use book::{Profile, Stack};
pub use hook::{Sampling, sample, snapshot, unseen};

/// An allocator whose allocations can be sampled.
#[derive(Debug)]
pub struct Sampled<A = System>(A);

impl<A> Sampled<A> {
    /// Samples what is asked of this one.
    pub const fn new(allocator: A) -> Self {
        Self(allocator)
    }
}

// SAFETY: every call is passed on as it came, and what it gives is given back as it is. Beside
// them only addresses and sizes are noted, as numbers; noting them does not unwind.
#[expect(unsafe_code, reason = "an allocator is unsafe by its trait")]
unsafe impl<A: GlobalAlloc> GlobalAlloc for Sampled<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller promises what the inner one demands.
        let pointer = unsafe { self.0.alloc(layout) };
        if hook::is_on() {
            hook::allocated(pointer.addr(), layout.size());
        }
        pointer
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let pointer = unsafe { self.0.alloc_zeroed(layout) };
        if hook::is_on() {
            hook::allocated(pointer.addr(), layout.size());
        }
        pointer
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // Before, not after: once it is free, another thread can get this address and note it.
        if hook::is_on() {
            hook::freed(pointer.addr());
        }
        // SAFETY: as above.
        unsafe { self.0.dealloc(pointer, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let old = hook::is_on().then(|| hook::freed(pointer.addr())).flatten();
        // SAFETY: as above.
        let moved = unsafe { self.0.realloc(pointer, layout, size) };
        if hook::is_on() {
            if moved.is_null() {
                hook::kept(pointer.addr(), old);
            } else {
                hook::allocated(moved.addr(), size);
            }
        }
        moved
    }
}
