//! How long something has looked like an orphan, by the monotonic clock.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use super::orphan_policy::Age;

/// The wall clock is trusted if it advances like the monotonic one, within this.
const TOLERANCE: Duration = Duration::from_secs(2);
/// Further orphans wait for a later garbage collection.
const MAX_ENTRIES: usize = 16_384;

#[derive(Clone, Copy, Debug)]
pub struct Now {
    pub monotonic: Instant,
    /// The clock of modification times.
    pub wall: SystemTime,
}

impl Now {
    pub fn read() -> Self {
        Self {
            monotonic: Instant::now(),
            wall: SystemTime::now(),
        }
    }
}

/// Everything that looked like an orphan in the last observation.
#[derive(Debug)]
pub(super) struct FirstSeen<K> {
    known: BTreeMap<K, FirstSeenEntry>,
}

#[derive(Debug)]
struct FirstSeenEntry {
    stamp: String,
    first: Now,
    /// Seen in the current observation.
    is_confirmed: bool,
    failures: u32,
    retry_at: Option<Instant>,
}

impl<K: Ord + Clone> Default for FirstSeen<K> {
    fn default() -> Self {
        Self {
            known: BTreeMap::new(),
        }
    }
}

impl<K: Ord + Clone> FirstSeen<K> {
    /// Begins an observation: what is not confirmed before its end is dropped.
    pub(super) fn begin(&mut self) {
        for sighting in self.known.values_mut() {
            sighting.is_confirmed = false;
        }
    }

    /// A changed stamp starts again at zero.
    pub(super) fn age(&self, key: &K, stamp: &str, modified: Option<SystemTime>, now: Now) -> Age {
        let known = self.known.get(key).filter(|known| known.stamp == stamp);
        let Some(FirstSeenEntry { first, .. }) = known else {
            return Age {
                by_file: modified.and_then(|modified| now.wall.duration_since(modified).ok()),
                seen_for: Duration::ZERO,
            };
        };
        let seen_for = now.monotonic.saturating_duration_since(first.monotonic);
        // A step of the wall clock changes the age of every file.
        let by_wall = now.wall.duration_since(first.wall).ok();
        let is_clock_right = by_wall.is_some_and(|by_wall| by_wall.abs_diff(seen_for) < TOLERANCE);
        let by_file = modified.and_then(|modified| now.wall.duration_since(modified).ok());
        Age {
            by_file: by_file.filter(|_| is_clock_right),
            seen_for,
        }
    }

    pub(super) fn confirm(&mut self, key: &K, stamp: &str, now: Now) {
        let has_room = self.known.len() < MAX_ENTRIES;
        match self.known.get_mut(key) {
            Some(known) if known.stamp == stamp => known.is_confirmed = true,
            None if !has_room => {}
            _ => {
                let sighting = FirstSeenEntry {
                    stamp: stamp.to_owned(),
                    first: now,
                    is_confirmed: true,
                    failures: 0,
                    retry_at: None,
                };
                self.known.insert(key.clone(), sighting);
            }
        }
    }

    pub(super) fn may_retry(&self, key: &K, now: Now) -> bool {
        let known = self.known.get(key);
        let retry_at = known.and_then(|known| known.retry_at);
        retry_at.is_none_or(|until| now.monotonic >= until)
    }

    /// Backs off exponentially.
    pub(super) fn failed(&mut self, key: &K, interval: Duration, now: Now) {
        const MAX_DOUBLINGS: u32 = 6;
        if let Some(known) = self.known.get_mut(key) {
            let delay = interval.saturating_mul(1 << known.failures.min(MAX_DOUBLINGS));
            known.failures += 1;
            known.retry_at = now.monotonic.checked_add(delay);
        }
    }

    pub(super) fn forget(&mut self, key: &K) {
        self.known.remove(key);
    }

    /// VethEnds a look.
    pub(super) fn end(&mut self) {
        self.known.retain(|_, sighting| sighting.is_confirmed);
    }

    pub(super) fn count(&self, is_counted: impl Fn(&K) -> bool) -> usize {
        self.known.keys().filter(|key| is_counted(key)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn later(now: Now, monotonic: u64, wall: i64) -> Now {
        let seconds = Duration::from_secs(wall.unsigned_abs());
        Now {
            monotonic: now.monotonic + Duration::from_secs(monotonic),
            wall: if wall < 0 {
                now.wall - seconds
            } else {
                now.wall + seconds
            },
        }
    }

    fn seen(first_seen: &FirstSeen<&'static str>, stamp: &str, modified: Now, now: Now) -> Age {
        first_seen.age(&"x", stamp, Some(modified.wall), now)
    }

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_confirmed_orphan_ages() {
        let (mut first_seen, start) = (FirstSeen::default(), Now::read());
        assert_eq!(seen(&first_seen, "1", start, start).seen_for, secs(0));
        first_seen.confirm(&"x", "1", start);
        let now = later(start, 60, 60);
        let age = seen(&first_seen, "1", start, now);
        assert_eq!((age.seen_for, age.by_file), (secs(60), Some(secs(60))));
        first_seen.confirm(&"x", "1", now);
        let now = later(start, 120, 120);
        assert_eq!(seen(&first_seen, "1", start, now).seen_for, secs(120));
    }

    #[test]
    fn a_changed_stamp_resets_the_age() {
        let (mut first_seen, start) = (FirstSeen::default(), Now::read());
        first_seen.confirm(&"x", "1", start);
        let now = later(start, 60, 60);
        assert_eq!(seen(&first_seen, "2", start, now).seen_for, secs(0));
        first_seen.confirm(&"x", "2", now);
        let now = later(start, 90, 90);
        assert_eq!(seen(&first_seen, "2", start, now).seen_for, secs(30));
    }

    #[test]
    fn an_unconfirmed_orphan_is_dropped() {
        let (mut first_seen, start) = (FirstSeen::default(), Now::read());
        first_seen.confirm(&"x", "1", start);
        first_seen.begin();
        first_seen.end();
        let now = later(start, 60, 60);
        assert_eq!(seen(&first_seen, "1", start, now).seen_for, secs(0));
        assert_eq!(first_seen.count(|_| true), 0);
    }

    #[test]
    fn a_clock_step_invalidates_the_file_age() {
        let (mut first_seen, start) = (FirstSeen::default(), Now::read());
        first_seen.confirm(&"x", "1", start);
        for jump in [3600, 90, 30, -3600] {
            let now = later(start, 60, jump);
            let age = seen(&first_seen, "1", start, now);
            assert_eq!((age.seen_for, age.by_file), (secs(60), None), "{jump}");
        }
        let future = later(start, 0, 3600);
        assert_eq!(seen(&first_seen, "1", future, start).by_file, None);
    }

    #[test]
    fn failures_back_off_exponentially() {
        let (mut first_seen, start) = (FirstSeen::default(), Now::read());
        first_seen.confirm(&"x", "1", start);
        assert!(first_seen.may_retry(&"x", start));
        for (failure, rest) in [60, 120, 240, 480, 960, 1920, 3840, 3840]
            .iter()
            .enumerate()
        {
            first_seen.failed(&"x", secs(60), start);
            let before = later(start, rest - 1, 0);
            assert!(!first_seen.may_retry(&"x", before), "{failure}");
            assert!(
                first_seen.may_retry(&"x", later(start, *rest, 0)),
                "{failure}"
            );
        }
    }
}
