//! The last action that Headscale refused, and when it is retried.
//!
//! Every tailscaled event starts a reconcile. Without this backoff, an overloaded Headscale would get
//! more requests the slower it is.

use std::time::{Duration, Instant};

use node_core::backoff::Backoff;

#[derive(Debug)]
pub(super) struct RefusedActions {
    message: Option<String>,
    backoff: Backoff,
}

impl Default for RefusedActions {
    fn default() -> Self {
        Self {
            message: None,
            backoff: Backoff::new(Duration::from_secs(2), Duration::from_mins(1)),
        }
    }
}

impl RefusedActions {
    pub(super) fn is_held(&self, now: Instant) -> bool {
        !self.backoff.is_due(now)
    }

    /// The refusal, and the delay until the retry.
    pub(super) fn pending(&self, now: Instant) -> Option<(&str, Duration)> {
        let message = self.message.as_deref()?;
        Some((message, self.backoff.remaining(now)))
    }

    pub(super) fn record(&mut self, message: String, now: Instant) {
        self.message = Some(message);
        self.backoff.next(now);
    }

    /// The action succeeded or is not needed any more.
    pub(super) fn clear(&mut self) {
        self.message = None;
        self.backoff.reset();
    }
}
