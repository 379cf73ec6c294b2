//! Clients that the kernel doesn't let in, because it or the process is out of something. That is told
//! once when it begins and once when it is over, however many wait.

use std::io;
use std::time::Duration;

use rustix::io::Errno;
use tokio::time::{Instant, timeout_at};

/// It is over when nobody was refused for so long.
pub const CALM: Duration = Duration::from_secs(5);

/// Whether clients are let in.
#[derive(Debug)]
pub struct Jam {
    calm: Duration,
    last_refusal: Option<Instant>,
}

/// What came of waiting for a client.
#[derive(Debug)]
pub enum Accepted<T> {
    /// One is in.
    Client(T),
    /// One waits, and is not let in.
    Refused {
        /// Why.
        error: io::Error,
        /// Whether it is the first one.
        is_first: bool,
    },
    /// Clients are let in again.
    Over,
}

impl Jam {
    /// There is none yet.
    pub fn new(calm: Duration) -> Self {
        Self {
            calm,
            last_refusal: None,
        }
    }

    /// Waits for a client.
    pub async fn accept<T>(
        &mut self,
        accepting: impl Future<Output = io::Result<T>>,
    ) -> Accepted<T> {
        let accepted = match self.last_refusal.map(|last| last + self.calm) {
            None => accepting.await,
            Some(end)
                if end > Instant::now()
                    && let Ok(accepted) = timeout_at(end, accepting).await =>
            {
                accepted
            }
            Some(_) => {
                self.last_refusal = None;
                return Accepted::Over;
            }
        };
        accepted.map_or_else(
            |error| Accepted::Refused {
                error,
                is_first: self.last_refusal.replace(Instant::now()).is_none(),
            },
            Accepted::Client,
        )
    }
}

/// What to do about a refusal.
pub fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MFILE) => "allow the daemon more open files: LimitNOFILE of its unit",
        Some(Errno::NFILE) => "the node has too many open files: raise the sysctl fs.file-max",
        Some(Errno::NOBUFS | Errno::NOMEM) => "the node is out of memory",
        _ => "it is tried again",
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    const SHORT: Duration = Duration::from_millis(20);

    fn full() -> io::Result<()> {
        Err(Errno::MFILE.into())
    }

    #[tokio::test]
    async fn the_first_refusal_and_the_end_are_told_apart_from_the_others() {
        let mut jam = Jam::new(SHORT);
        for expected in [true, false, false] {
            let Accepted::Refused { is_first, error } = jam.accept(ready(full())).await else {
                panic!("not refused");
            };
            assert_eq!(is_first, expected);
            assert!(remedy(&error).contains("LimitNOFILE"));
        }
        // One that gets in between is not the end of it.
        let one = jam.accept(ready(Ok(()))).await;
        assert!(matches!(one, Accepted::Client(())), "{one:?}");
        let over = jam.accept(pending::<io::Result<()>>()).await;
        assert!(matches!(over, Accepted::Over), "{over:?}");
        let again = jam.accept(ready(full())).await;
        assert!(matches!(again, Accepted::Refused { is_first: true, .. }));
    }

    #[tokio::test]
    async fn it_is_over_though_somebody_comes_all_the_time() {
        let mut jam = Jam::new(SHORT);
        jam.accept(ready(full())).await;
        tokio::time::sleep(SHORT).await;
        let over = jam.accept(ready(Ok(()))).await;
        assert!(matches!(over, Accepted::Over), "{over:?}");
        let one = jam.accept(ready(Ok(()))).await;
        assert!(matches!(one, Accepted::Client(())), "{one:?}");
    }
}
