//! One cluster at a time: each has three machines' worth of processes, and two at once only slow each
//! other down.

use std::sync::{Mutex, MutexGuard, PoisonError};

static TURN: Mutex<()> = Mutex::new(());

/// Waits until no other test of this target has a cluster. Whoever failed before is no reason not to
/// go on.
pub(crate) fn take() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
