//! Who asks, and for how long we listen.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The other end of a connection.
#[derive(Clone, Debug)]
pub(super) struct Client {
    peer: IpAddr,
    deadline: Arc<Mutex<Instant>>,
    has_asked: Arc<AtomicBool>,
    dismissal: CancellationToken,
}

impl Client {
    pub(super) fn new(peer: SocketAddr, patience: Duration) -> Self {
        Self {
            peer: peer.ip().to_canonical(),
            deadline: Arc::new(Mutex::new(Instant::now() + patience)),
            has_asked: Arc::default(),
            dismissal: CancellationToken::new(),
        }
    }

    /// Notes that its request is here: from now on it is we who take time.
    pub(super) fn note_request(&self) {
        self.has_asked.store(true, Ordering::Relaxed);
    }

    /// Whether its request has not come yet.
    pub(super) fn is_silent(&self) -> bool {
        !self.has_asked.load(Ordering::Relaxed)
    }

    /// Sends it away, because somebody else needs its place.
    pub(super) fn dismiss(&self) {
        self.dismissal.cancel();
    }

    /// Returns when it has been sent away.
    pub(super) async fn dismissed(&self) {
        self.dismissal.cancelled().await;
    }

    /// Whether it is on this machine, and asks as such.
    pub(super) fn is_local(&self) -> bool {
        self.peer.is_loopback()
    }

    /// When the connection ends, finished or not.
    pub(super) fn deadline(&self) -> Instant {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives it more time, because we need it ourselves.
    pub(super) fn wait_for(&self, work: Duration) {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner) += work;
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("127.0.0.1:1", true)]
    #[case("127.8.8.8:1", true)]
    #[case("[::1]:1", true)]
    #[case("[::ffff:127.0.0.1]:1", true)]
    #[case("10.244.1.7:1", false)]
    #[case("[::ffff:10.244.1.7]:1", false)]
    #[case("[fe80::1]:1", false)]
    fn a_client_is_local_if_it_asks_from_loopback(#[case] peer: SocketAddr, #[case] local: bool) {
        assert_eq!(Client::new(peer, Duration::ZERO).is_local(), local);
    }
}
