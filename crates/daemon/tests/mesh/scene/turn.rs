//! Few clusters at a time: each has three machines' worth of processes, which mostly wait. A test that does
//! nothing but wait, for minutes, gives its turn to another one.

use std::sync::{Condvar, Mutex, PoisonError};

/// So many get on without slowing each other down, on two cores.
static FREE: Mutex<usize> = Mutex::new(2);
static FREED: Condvar = Condvar::new();

/// A cluster's turn, until it is dropped.
pub(super) struct Turn(());

/// Waits until few other tests of this target have a cluster. Whoever failed before is no reason not to
/// go on.
pub(super) fn take() -> Turn {
    let free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
    let free = FREED.wait_while(free, |free| *free == 0);
    *free.unwrap_or_else(PoisonError::into_inner) -= 1;
    Turn(())
}

impl Drop for Turn {
    fn drop(&mut self) {
        *FREE.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        FREED.notify_one();
    }
}
