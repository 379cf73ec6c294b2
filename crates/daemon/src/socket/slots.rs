//! Places for clients. When all are taken, the client that has been silent for longest makes room.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// All places.
#[derive(Debug)]
pub(super) struct Slots {
    free: Arc<Semaphore>,
    silent: Arc<Silent>,
}

/// Those whose clients say nothing, by when they fell silent.
#[derive(Debug, Default)]
struct Silent {
    list: Mutex<(u64, BTreeMap<u64, Arc<Notify>>)>,
    /// Somebody has fallen silent, or is no longer.
    changed: Notify,
}

/// A client's place, until it is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    _permit: OwnedSemaphorePermit,
    silent: Arc<Silent>,
}

/// A silence, until it is dropped.
#[derive(Debug)]
pub(super) struct Silence<'a> {
    number: u64,
    leave: Arc<Notify>,
    silent: &'a Silent,
}

impl Slots {
    pub(super) fn new(count: usize) -> Self {
        Self {
            free: Arc::new(Semaphore::new(count)),
            silent: Arc::default(),
        }
    }

    /// A place for a client; somebody silent leaves for it if need be. While nobody is silent, this
    /// waits.
    pub(super) async fn take(&self) -> Slot {
        loop {
            let changed = self.silent.changed.notified();
            if let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() {
                return self.slot(permit);
            }
            self.silent.send_one_away();
            tokio::select! {
                permit = Arc::clone(&self.free).acquire_owned() => match permit {
                    Ok(permit) => return self.slot(permit),
                    // Nobody closes it.
                    Err(_) => std::future::pending().await,
                },
                // Who was sent away may have begun to speak instead.
                () = changed => {}
            }
        }
    }

    fn slot(&self, permit: OwnedSemaphorePermit) -> Slot {
        Slot {
            _permit: permit,
            silent: Arc::clone(&self.silent),
        }
    }
}

impl Silent {
    fn list(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Arc<Notify>>)> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send_one_away(&self) {
        let oldest = self.list().1.pop_first();
        if let Some((_, leave)) = oldest {
            leave.notify_one();
        }
    }
}

impl Slot {
    /// Begins to wait for the client.
    pub(super) fn silence(&self) -> Silence<'_> {
        let leave = Arc::<Notify>::default();
        let mut list = self.silent.list();
        let number = list.0;
        list.0 += 1;
        list.1.insert(number, Arc::clone(&leave));
        drop(list);
        self.silent.changed.notify_waiters();
        Silence {
            number,
            leave,
            silent: &self.silent,
        }
    }
}

impl Silence<'_> {
    /// Ends when the place is wanted for somebody else.
    pub(super) async fn must_leave(&self) {
        self.leave.notified().await;
    }
}

impl Drop for Silence<'_> {
    fn drop(&mut self) {
        self.silent.list().1.remove(&self.number);
        self.silent.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// What a future has come to, if nobody else does anything.
    fn now<T>(future: impl Future<Output = T>) -> Option<T> {
        let mut context = Context::from_waker(Waker::noop());
        match pin!(future).as_mut().poll(&mut context) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    #[test]
    fn the_longest_silent_one_leaves_for_a_new_one() {
        let slots = Slots::new(2);
        let one = now(slots.take()).unwrap();
        let two = now(slots.take()).unwrap();
        let second = two.silence();
        let first = one.silence();
        let mut third = pin!(slots.take());
        let mut context = Context::from_waker(Waker::noop());
        assert!(third.as_mut().poll(&mut context).is_pending());
        assert!(now(second.must_leave()).is_some(), "it fell silent first");
        assert!(now(first.must_leave()).is_none());
        drop(second);
        drop(two);
        assert!(third.as_mut().poll(&mut context).is_ready());
    }

    #[test]
    fn nobody_leaves_while_there_is_room() {
        let slots = Slots::new(2);
        let one = now(slots.take()).unwrap();
        let silence = one.silence();
        let _two = now(slots.take()).unwrap();
        assert!(now(silence.must_leave()).is_none());
    }

    #[test]
    fn one_who_is_busy_stays_until_it_falls_silent() {
        let slots = Slots::new(1);
        let busy = now(slots.take()).unwrap();
        let mut other = pin!(slots.take());
        let mut context = Context::from_waker(Waker::noop());
        assert!(other.as_mut().poll(&mut context).is_pending());
        let silence = busy.silence();
        assert!(other.as_mut().poll(&mut context).is_pending());
        assert!(now(silence.must_leave()).is_some());
    }

    #[test]
    fn another_one_leaves_if_the_first_begins_to_speak_after_all() {
        let slots = Slots::new(2);
        let one = now(slots.take()).unwrap();
        let two = now(slots.take()).unwrap();
        let (first, second) = (one.silence(), two.silence());
        let mut third = pin!(slots.take());
        let mut context = Context::from_waker(Waker::noop());
        assert!(third.as_mut().poll(&mut context).is_pending());
        assert!(now(second.must_leave()).is_none());
        drop(first);
        assert!(third.as_mut().poll(&mut context).is_pending());
        assert!(now(second.must_leave()).is_some());
    }

    #[test]
    fn one_who_has_spoken_is_not_sent_away() {
        let slots = Slots::new(1);
        let one = now(slots.take()).unwrap();
        drop(one.silence());
        assert!(now(slots.take()).is_none());
        assert!(slots.silent.list().1.is_empty());
    }
}
