//! Whether the API can be asked: how each watch fares. Pure.

use std::collections::BTreeMap;

use kube::runtime::watcher;

use crate::causes::with_causes;

/// What is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Watched {
    Nodes,
    Pods,
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
            message: with_causes(error),
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
