//! Whether the API can be asked: how each watch fares. Pure.

use std::collections::BTreeMap;

use kube::runtime::watcher;

use node_core::error::display_chain;

/// What is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Watched {
    Nodes,
    Pods,
    Namespaces,
}

/// The watches that fail.
#[derive(Debug, Default)]
pub(super) struct Reach {
    failing: BTreeMap<Watched, Failure>,
}

#[derive(Debug)]
struct Failure {
    message: String,
    was_answered: bool,
}

impl Reach {
    /// A watch has told something.
    pub(super) fn works(&mut self, watched: Watched) {
        self.failing.remove(&watched);
    }

    /// A watch has failed. It goes on by itself, and says nothing until there is something to tell.
    pub(super) fn fails(&mut self, watched: Watched, error: &watcher::Error) {
        let failure = Failure {
            message: display_chain(error),
            was_answered: was_answered(error),
        };
        self.failing.insert(watched, failure);
    }

    /// Whether it should be asked for a sign of life: nobody answered to a watch.
    pub(super) fn is_silent(&self) -> bool {
        self.failing.values().any(|failure| !failure.was_answered)
    }

    /// It has given a sign of life.
    pub(super) fn lives(&mut self) {
        self.failing.retain(|_, failure| failure.was_answered);
    }

    /// What is wrong, if something is.
    pub(super) fn trouble(&self) -> Option<&str> {
        let first = self.failing.values().next();
        first.map(|failure| failure.message.as_str())
    }
}

/// Whether it is the API that refuses.
fn was_answered(error: &watcher::Error) -> bool {
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
    fn a_sign_of_life_ends_silence_but_no_refusal() {
        let silence = || kube::Error::Service("connection refused".into());
        let forbidden = Status::failure("namespaces is forbidden", "Forbidden");
        let refusal = kube::Error::Api(Box::new(forbidden));
        let mut reach = Reach::default();
        assert!(reach.trouble().is_none() && !reach.is_silent());
        reach.fails(
            Watched::Namespaces,
            &watcher::Error::InitialListFailed(refusal),
        );
        assert!(!reach.is_silent());
        reach.fails(Watched::Nodes, &watcher::Error::WatchStartFailed(silence()));
        reach.fails(Watched::Pods, &watcher::Error::WatchFailed(silence()));
        assert!(reach.is_silent());
        reach.works(Watched::Nodes);
        assert!(reach.is_silent(), "pods are not watched yet");
        reach.lives();
        assert!(!reach.is_silent());
        let trouble = reach.trouble().unwrap();
        assert!(trouble.contains("namespaces is forbidden"), "{trouble}");
        reach.works(Watched::Namespaces);
        assert_eq!(reach.trouble(), None);
    }
}
