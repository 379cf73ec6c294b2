//! A fuse for tests: burns down with every step of a change, and ends it like a crash would.
//!
//! In the real program there is none, and these calls are nothing.

/// How a crash looks to the code that it ends.
pub(super) const CRASH: &str = "crash in";

#[cfg(not(test))]
#[expect(clippy::unnecessary_wraps, reason = "it can fail in tests")]
pub(super) fn burn(_dir: &std::path::Path) -> Result<(), super::StoreError> {
    Ok(())
}

#[cfg(test)]
pub(super) use fitted::{burn, light};

#[cfg(test)]
mod fitted {
    use std::cell::Cell;
    use std::io::ErrorKind;
    use std::path::Path;

    use super::super::{StoreError, io_error};
    use super::CRASH;

    thread_local! {
        static STEPS_LEFT: Cell<Option<u32>> = const { Cell::new(None) };
    }

    /// Lets this thread crash after so many steps; `None` puts the fuse out.
    pub(in super::super) fn light(steps: Option<u32>) {
        STEPS_LEFT.set(steps);
    }

    pub(in super::super) fn burn(dir: &Path) -> Result<(), StoreError> {
        match STEPS_LEFT.get() {
            Some(0) => Err(io_error(CRASH, dir)(ErrorKind::Other.into())),
            Some(left) => {
                STEPS_LEFT.set(Some(left - 1));
                Ok(())
            }
            None => Ok(()),
        }
    }
}
