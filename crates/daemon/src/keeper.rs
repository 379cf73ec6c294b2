//! Keeps a part of the node as it should be: a full pass at start, after every sign of a change, and
//! from time to time all the same.
//!
//! A pass that fails is tried again, the longer the more often it has failed. One that had to
//! repair something again and again, because somebody else undoes it, is slowed down as well.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};
use tokio::time::{sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::conditions::{Condition, Conditions};
use crate::metrics::{ByPart, Metrics};

/// Nothing is done more often than this, whatever happens, nor sooner after a sign: more may come, and
/// whoever gave it may be in the middle of something.
const PAUSE: Duration = Duration::from_millis(200);
/// Nor a pass that has failed, if something happens before it is due: it may be its own doing.
const AFTER_FAILURE: Duration = Duration::from_millis(500);
/// The first wait after a failure, and after a repair that did not last.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// The longest wait in a fight: below FIGHT, so that it is still seen as one.
const LONGEST_TRUCE: Duration = Duration::from_secs(4);
/// A repair that comes this soon after the one before is a fight.
const FIGHT: Duration = Duration::from_secs(5);
/// So many of them in a row are let pass.
const PATIENCE: u32 = 10;

/// What a pass has to say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// For the condition: what is in place.
    pub message: String,
    /// What was not as it should be and is again, for the log.
    pub repairs: Vec<String>,
    /// What no pass can mend, with the remedy: the condition does not hold.
    pub trouble: Option<String>,
}

/// A part of the node, and where it is reported.
#[derive(Clone)]
pub struct Part {
    /// As metrics and logs have it.
    pub name: &'static str,
    /// What holds while its passes succeed.
    pub condition: Condition,
    /// A pass is due when this is notified.
    pub changed: Arc<Notify>,
    /// How often a pass is made anyway.
    pub every: Duration,
}

/// Where passes are reported.
#[derive(Clone)]
pub struct Reports {
    /// For `/ready`.
    pub conditions: Arc<Conditions>,
    /// For `/metrics`.
    pub metrics: Arc<Metrics>,
}

/// Makes passes until it is told to end.
pub async fn keep<S, F>(
    part: Part,
    reports: Reports,
    mut settings: watch::Receiver<S>,
    end: CancellationToken,
    pass: F,
) where
    S: Clone + Send + Sync + 'static,
    F: Fn(S) -> Result<Outcome, String> + Clone + Send + Sync + 'static,
{
    let mut wait = Duration::ZERO;
    let mut pace = Pace::default();
    // What is done because we are told otherwise is nobody's undoing.
    let mut is_told = true;
    loop {
        let current = settings.borrow_and_update().clone();
        let work = pass.clone();
        let started = Instant::now();
        let outcome = tokio::task::spawn_blocking(move || work(current)).await;
        let Ok(outcome) = outcome else {
            // A panic ends the process; this is its end.
            return;
        };
        let by = ByPart {
            part: part.name.to_owned(),
        };
        let metrics = &reports.metrics;
        metrics
            .reconcile_duration
            .get_or_create(&by)
            .observe(started.elapsed().as_secs_f64());
        let until = match outcome {
            Ok(outcome) => {
                for repair in &outcome.repairs {
                    tracing::info!(part = part.name, %repair, "repaired");
                }
                wait = Duration::ZERO;
                let has_repaired = !outcome.repairs.is_empty();
                let slowed = pace.after(has_repaired && !is_told, started);
                if has_repaired {
                    metrics.repairs.get_or_create(&by).inc();
                }
                match outcome.trouble {
                    Some(trouble) => reports.conditions.fails(part.condition, trouble),
                    None => reports.conditions.holds(part.condition, outcome.message),
                }
                slowed
            }
            Err(message) => {
                metrics.reconcile_errors.get_or_create(&by).inc();
                reports.conditions.fails(part.condition, message);
                wait = (wait * 2).clamp(FIRST_WAIT, LONGEST_WAIT);
                AFTER_FAILURE
            }
        };
        // What happens in the meantime is looked at afterwards, all at once.
        let due = tokio::time::Instant::now() + until;
        let next = if wait.is_zero() { part.every } else { wait };
        is_told = tokio::select! {
            () = end.cancelled() => return,
            changed = settings.changed() => match changed {
                Ok(()) => true,
                Err(_) => return,
            },
            _ = timeout(next, part.changed.notified()) => false,
        };
        let due = due.max(tokio::time::Instant::now() + PAUSE);
        tokio::select! {
            () = end.cancelled() => return,
            () = sleep_until(due) => {}
        }
        is_told |= settings.has_changed().unwrap_or(false);
    }
}

/// Slows repairs down that don't last.
#[derive(Default)]
struct Pace {
    last_repair: Option<Instant>,
    in_a_row: u32,
}

impl Pace {
    /// How long to wait at least after a pass.
    fn after(&mut self, has_repaired: bool, now: Instant) -> Duration {
        if !has_repaired {
            return PAUSE;
        }
        let is_soon = self.last_repair.is_some_and(|last| now - last < FIGHT);
        self.in_a_row = if is_soon { self.in_a_row + 1 } else { 0 };
        self.last_repair = Some(now);
        match self.in_a_row.checked_sub(PATIENCE) {
            None => PAUSE,
            Some(0) => {
                tracing::warn!(
                    "something undoes our repairs again and again; they are made less often now"
                );
                FIRST_WAIT
            }
            Some(more) => (FIRST_WAIT * (more + 1)).min(LONGEST_TRUCE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fight_is_slowed_down_and_forgotten_when_it_ends() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        for _ in 0..PATIENCE {
            assert_eq!(pace.after(true, now), PAUSE);
            now += PAUSE;
        }
        let waits: Vec<Duration> = (0..6)
            .map(|_| {
                let wait = pace.after(true, now);
                now += wait;
                wait
            })
            .collect();
        assert_eq!(waits[0], FIRST_WAIT);
        assert_eq!(waits[5], LONGEST_TRUCE);
        now += FIGHT;
        assert_eq!(pace.after(true, now), PAUSE);
    }

    #[tokio::test]
    async fn settings_that_change_all_the_time_are_no_fight() {
        let reports = Reports {
            conditions: Arc::new(Conditions::default()),
            metrics: Arc::new(Metrics::new()),
        };
        let part = Part {
            name: "test",
            condition: Condition::NetworkReady,
            changed: Arc::new(Notify::new()),
            every: Duration::from_mins(1),
        };
        let settings = watch::Sender::new(0);
        let (done, mut passes) = tokio::sync::mpsc::unbounded_channel();
        let end = CancellationToken::new();
        let keeping = keep(
            part,
            reports,
            settings.subscribe(),
            end.clone(),
            move |now| {
                done.send(now).map_err(|error| error.to_string())?;
                Ok(Outcome {
                    message: String::new(),
                    repairs: vec!["something".to_owned()],
                    trouble: None,
                })
            },
        );
        let task = tokio::spawn(keeping);
        let began = Instant::now();
        let last = PATIENCE + 5;
        for nth in 1..=last {
            assert_eq!(passes.recv().await, Some(nth - 1));
            settings.send_replace(nth);
        }
        assert_eq!(passes.recv().await, Some(last));
        assert!(began.elapsed() < PAUSE * last * 2, "{:?}", began.elapsed());
        end.cancel();
        task.await.unwrap();
    }

    #[test]
    fn a_pass_that_repairs_nothing_is_no_part_of_a_fight() {
        let mut pace = Pace::default();
        let now = Instant::now();
        for _ in 0..100 {
            assert_eq!(pace.after(false, now), PAUSE);
        }
        assert_eq!(pace.after(true, now), PAUSE);
    }
}
