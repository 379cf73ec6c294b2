//! Whether the watches work. Pure.

use std::collections::BTreeMap;

use kube::runtime::watcher;

use node_core::error::display_chain;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Watched {
    Nodes,
    Pods,
    Namespaces,
}

#[derive(Debug, Default)]
pub(super) struct WatchHealth {
    failing: BTreeMap<Watched, Failure>,
}

#[derive(Debug)]
struct Failure {
    message: String,
    is_rejected: bool,
}

impl WatchHealth {
    pub(super) fn succeeded(&mut self, watched: Watched) {
        self.failing.remove(&watched);
    }

    /// The watch retries by itself, but has no event until an object changes.
    pub(super) fn failed(&mut self, watched: Watched, error: &watcher::Error) {
        let failure = Failure {
            message: display_chain(error),
            is_rejected: is_rejected(error),
        };
        self.failing.insert(watched, failure);
    }

    /// Whether a watch failed without an answer, so that only a probe shows when the API is back.
    pub(super) fn needs_probe(&self) -> bool {
        self.failing.values().any(|failure| !failure.is_rejected)
    }

    pub(super) fn probe_succeeded(&mut self) {
        self.failing.retain(|_, failure| failure.is_rejected);
    }

    pub(super) fn failure(&self) -> Option<&str> {
        let first = self.failing.values().next();
        first.map(|failure| failure.message.as_str())
    }
}

/// Whether the API answered with an error.
fn is_rejected(error: &watcher::Error) -> bool {
    use watcher::Error::{
        InitialListFailed, NoResourceVersion, WatchError, WatchFailed, WatchStartFailed,
    };
    match error {
        InitialListFailed(cause) | WatchStartFailed(cause) | WatchFailed(cause) => {
            matches!(cause, kube::Error::Api(_))
        }
        WatchError(_) | NoResourceVersion => true,
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_probe_clears_missing_answers_but_no_rejection() {
        let no_answer = || kube::Error::Service("connection refused".into());
        let forbidden = Status::failure("namespaces is forbidden", "Forbidden");
        let rejection = kube::Error::Api(Box::new(forbidden));
        let mut health = WatchHealth::default();
        assert!(health.failure().is_none() && !health.needs_probe());
        health.failed(
            Watched::Namespaces,
            &watcher::Error::InitialListFailed(rejection),
        );
        assert!(!health.needs_probe());
        health.failed(
            Watched::Nodes,
            &watcher::Error::WatchStartFailed(no_answer()),
        );
        health.failed(Watched::Pods, &watcher::Error::WatchFailed(no_answer()));
        assert!(health.needs_probe());
        health.succeeded(Watched::Nodes);
        assert!(health.needs_probe(), "the Pod watch still fails");
        health.probe_succeeded();
        assert!(!health.needs_probe());
        let failure = health.failure().unwrap();
        assert!(failure.contains("namespaces is forbidden"), "{failure}");
        health.succeeded(Watched::Namespaces);
        assert_eq!(health.failure(), None);
    }
}
