//! Crash injection for unit tests: ends a transaction at its nth checkpoint. Empty in release
//! builds.

/// The `attempt` of an injected error.
pub(super) const CRASH: &str = "injected crash in";

#[cfg(not(test))]
#[expect(clippy::unnecessary_wraps, reason = "it can fail in tests")]
pub(super) fn checkpoint(_dir: &std::path::Path) -> Result<(), super::StoreError> {
    Ok(())
}

#[cfg(test)]
pub(crate) use injected::{checkpoint, crash_after, fail_once_after};

#[cfg(test)]
mod injected {
    use std::cell::Cell;
    use std::io::ErrorKind;
    use std::path::Path;

    use super::super::{StoreError, io_error};
    use super::CRASH;

    thread_local! {
        static STEPS_LEFT: Cell<Option<u32>> = const { Cell::new(None) };
        static FAILS_ONCE: Cell<bool> = const { Cell::new(false) };
    }

    /// Makes this thread fail at every checkpoint after the next `steps`; `None` disarms it.
    pub(crate) fn crash_after(steps: Option<u32>) {
        STEPS_LEFT.set(steps);
        FAILS_ONCE.set(false);
    }

    /// Makes this thread fail at one checkpoint, after the next `steps`.
    pub(crate) fn fail_once_after(steps: u32) {
        STEPS_LEFT.set(Some(steps));
        FAILS_ONCE.set(true);
    }

    pub(crate) fn checkpoint(dir: &Path) -> Result<(), StoreError> {
        match STEPS_LEFT.get() {
            Some(0) => {
                if FAILS_ONCE.get() {
                    STEPS_LEFT.set(None);
                }
                Err(io_error(CRASH, dir)(ErrorKind::Other.into()))
            }
            Some(left) => {
                STEPS_LEFT.set(Some(left - 1));
                Ok(())
            }
            None => Ok(()),
        }
    }
}
