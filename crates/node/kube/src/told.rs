//! Which changes of conditions people are told of by Events: what has failed for a while, and that it
//! holds again. Pure.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use node_core::conditions::{Condition, State};

/// What fails for less is no news: nodes start, and tailscaled connects again.
const FOR_A_WHILE: Duration = Duration::from_secs(30);

/// The conditions whose failure was told.
#[derive(Debug, Default)]
pub(super) struct Told {
    failing: BTreeSet<Condition>,
}

/// Something to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct News {
    pub(super) condition: Condition,
    pub(super) holds: bool,
    pub(super) message: String,
}

impl Told {
    /// What there is to tell now.
    pub(super) fn news(&self, all: &[(Condition, State)], now: SystemTime) -> Vec<News> {
        let mut news = Vec::new();
        for (condition, state) in all {
            let was_told = self.failing.contains(condition);
            let lasted = now.duration_since(state.since).unwrap_or_default();
            let is_news = match (state.holds, was_told) {
                (true, true) => true,
                (false, false) => lasted >= FOR_A_WHILE,
                _ => false,
            };
            if is_news {
                news.push(News {
                    condition: *condition,
                    holds: state.holds,
                    message: state.message.clone(),
                });
            }
        }
        news
    }

    /// It was told.
    pub(super) fn note(&mut self, news: &News) {
        if news.holds {
            self.failing.remove(&news.condition);
        } else {
            self.failing.insert(news.condition);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_for_a_while_is_told_once_and_its_end_as_well() {
        let start = SystemTime::UNIX_EPOCH;
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let state = |holds: bool, since: u64| {
            let state = State {
                holds,
                message: "m".to_owned(),
                since: at(since),
            };
            [(Condition::ClockInSync, state)]
        };
        let mut told = Told::default();
        let mut count = |state: &[(Condition, State)], now| {
            let news = told.news(state, now);
            // What could not be told is still news.
            assert_eq!(told.news(state, now), news);
            for news in &news {
                told.note(news);
            }
            news.len()
        };
        assert_eq!(count(&state(true, 0), at(99)), 0);
        assert_eq!(count(&state(false, 100), at(120)), 0);
        assert_eq!(count(&state(false, 100), at(130)), 1);
        assert_eq!(count(&state(false, 100), at(500)), 0);
        assert_eq!(count(&state(true, 600), at(600)), 1);
        assert_eq!(count(&state(true, 600), at(700)), 0);
        // A short one is never told of, nor its end.
        assert_eq!(count(&state(false, 800), at(801)), 0);
        assert_eq!(count(&state(true, 802), at(900)), 0);
    }
}
