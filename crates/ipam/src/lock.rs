//! `flock` with a timeout.

use std::fs::{File, TryLockError};
use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Locks `file` and returns whether it got the lock within `timeout`.
///
/// A thread blocks in `flock`, because `flock` has no timeout and polling is unfair (ADR 8). If the
/// lock arrives after the timeout, the thread ends and its descriptor releases the lock.
pub(crate) fn lock_within(file: &File, timeout: Duration) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => return Ok(true),
        Err(TryLockError::Error(error)) => return Err(error),
        Err(TryLockError::WouldBlock) => {}
    }
    // Both descriptors share one open file description, so they share the lock.
    let copy = file.try_clone()?;
    let (sender, receiver) = mpsc::channel();
    let waiting = thread::Builder::new().spawn(move || {
        let outcome = copy.lock();
        // The receiver is gone after the timeout.
        let _ = sender.send(outcome);
    });
    if waiting.is_err() {
        // EAGAIN: the machine is out of threads. Report it as a timeout, which callers retry.
        return Ok(false);
    }
    match receiver.recv_timeout(timeout) {
        Ok(outcome) => outcome.map(|()| true),
        Err(_) => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tempfile::NamedTempFile;

    use super::*;

    #[test]
    fn a_waiter_gets_the_lock_when_it_is_released() {
        let file = NamedTempFile::new().unwrap();
        let open = || File::open(file.path()).unwrap();
        let (held, waiting) = (open(), open());
        held.lock().unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| lock_within(&waiting, Duration::from_mins(1)).unwrap());
            drop(held);
            assert!(waiter.join().unwrap());
        });
        assert!(
            open().try_lock().is_err(),
            "the lock outlives the waiting thread"
        );
        drop(waiting);
        assert!(open().try_lock().is_ok());
    }

    #[test]
    fn a_timeout_leaves_no_lock_behind() {
        let file = NamedTempFile::new().unwrap();
        let open = || File::open(file.path()).unwrap();
        let held = open();
        held.lock().unwrap();
        let late = open();
        let started = Instant::now();
        assert!(!lock_within(&late, Duration::from_millis(50)).unwrap());
        assert!(started.elapsed() < Duration::from_secs(30));
        drop((held, late));
        // The abandoned thread gets the lock now and must release it.
        assert!(lock_within(&open(), Duration::from_mins(1)).unwrap());
    }
}
