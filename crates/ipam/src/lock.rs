//! A lock with a deadline: host-local's own, taken blocking and never polled.

use std::fs::{File, TryLockError};
use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Locks `file`, waiting for whoever has it. `false` if that took longer than `patience`.
///
/// A thread does the waiting: the kernel wakes it in turn, and the deadline needs no signal. When
/// it comes too late, nobody takes what it got, and it lets go of the lock by ending.
pub(crate) fn lock_within(file: &File, patience: Duration) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => return Ok(true),
        Err(TryLockError::Error(error)) => return Err(error),
        Err(TryLockError::WouldBlock) => {}
    }
    // The copy is the same open file to the kernel, so the lock is ours as well.
    let copy = file.try_clone()?;
    let (sender, receiver) = mpsc::channel();
    let waiting = thread::Builder::new().spawn(move || {
        let outcome = copy.lock();
        // Nobody listens any more after the deadline.
        let _ = sender.send(outcome);
    });
    if waiting.is_err() {
        // No thread to be had: this machine is too busy for a turn.
        return Ok(false);
    }
    match receiver.recv_timeout(patience) {
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
    fn whoever_waits_gets_the_lock_when_it_is_let_go() {
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
            "it is held after the waiting thread has ended"
        );
        drop(waiting);
        assert!(open().try_lock().is_ok());
    }

    #[test]
    fn the_deadline_ends_the_wait_and_leaves_no_lock_behind() {
        let file = NamedTempFile::new().unwrap();
        let open = || File::open(file.path()).unwrap();
        let held = open();
        held.lock().unwrap();
        let late = open();
        let started = Instant::now();
        assert!(!lock_within(&late, Duration::from_millis(50)).unwrap());
        assert!(started.elapsed() < Duration::from_secs(30));
        drop((held, late));
        // The abandoned thread gets the lock now, and must let go of it.
        assert!(lock_within(&open(), Duration::from_mins(1)).unwrap());
    }
}
