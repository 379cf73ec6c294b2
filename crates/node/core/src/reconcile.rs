//! The loop of a controller: reconcile at start, after every change, and at an interval.
//!
//! Failures back off. A repair that another program undoes again and again is made less often.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch::error::RecvError;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::conditions::{Condition, Conditions};
use crate::metrics::{ByController, Metrics};

/// After an event, for more of them: its cause may not be complete.
const DEBOUNCE: Duration = Duration::from_millis(200);
/// After a failure, even if an event arrives: the reconcile itself may have caused it.
const AFTER_FAILURE: Duration = Duration::from_millis(500);
/// The first back-off after a failure, and after a repair that did not last.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Below FIGHT, so that a fight is still detected.
const LONGEST_FIGHT_WAIT: Duration = Duration::from_secs(4);
/// Two repairs within this time are a fight with another program.
const FIGHT: Duration = Duration::from_secs(5);
/// In a row.
const TOLERATED_FIGHTS: u32 = 10;

/// The result of a reconcile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reconciled {
    /// For the condition.
    pub message: String,
    /// For the log.
    pub repairs: Vec<String>,
    /// What no reconcile can repair, with the remedy: the condition is False.
    pub failure: Option<String>,
}

#[derive(Clone)]
pub struct Controller {
    /// In metrics and logs.
    pub name: &'static str,
    /// True while reconciles succeed.
    pub condition: Condition,
    /// Triggers a reconcile.
    pub changed: Arc<Notify>,
    /// Between reconciles without a trigger.
    pub interval: Duration,
}

#[derive(Clone)]
pub struct Telemetry {
    /// For `/ready`.
    pub conditions: Arc<Conditions>,
    /// For `/metrics`.
    pub metrics: Arc<Metrics>,
}

/// The inputs of a controller: one `watch` channel, or several.
pub trait Inputs: Send {
    type Value: Send + 'static;

    /// The latest values, which count as seen from now on.
    fn latest(&mut self) -> Self::Value;

    /// Waits for a value that was not seen; an error means that its producer ended.
    fn changed(&mut self) -> impl Future<Output = Result<(), RecvError>> + Send;

    /// Whether there is a value that was not seen.
    fn has_changed(&self) -> bool;
}

impl<T: Clone + Send + Sync + 'static> Inputs for watch::Receiver<T> {
    type Value = T;

    fn latest(&mut self) -> T {
        self.borrow_and_update().clone()
    }

    async fn changed(&mut self) -> Result<(), RecvError> {
        Self::changed(self).await
    }

    fn has_changed(&self) -> bool {
        Self::has_changed(self).unwrap_or(false)
    }
}

impl<A: Inputs, B: Inputs> Inputs for (A, B) {
    type Value = (A::Value, B::Value);

    fn latest(&mut self) -> Self::Value {
        (self.0.latest(), self.1.latest())
    }

    async fn changed(&mut self) -> Result<(), RecvError> {
        tokio::select! {
            changed = self.0.changed() => changed,
            changed = self.1.changed() => changed,
        }
    }

    fn has_changed(&self) -> bool {
        self.0.has_changed() || self.1.has_changed()
    }
}

/// Reconciles at start, after every change and at an interval, until shutdown.
pub async fn run<I, F>(
    controller: Controller,
    telemetry: Telemetry,
    mut inputs: I,
    shutdown: CancellationToken,
    reconcile: F,
) where
    I: Inputs,
    F: Fn(I::Value) -> Result<Reconciled, String> + Clone + Send + Sync + 'static,
{
    let mut wait = Duration::ZERO;
    let mut pace = Pace::default();
    // A repair that follows new inputs is no fight with another program.
    let mut has_new_inputs = true;
    loop {
        let current = inputs.latest();
        let work = reconcile.clone();
        let started = Instant::now();
        let outcome = tokio::task::spawn_blocking(move || work(current)).await;
        let Ok(outcome) = outcome else {
            // A panic ends the process.
            return;
        };
        let by = ByController {
            controller: controller.name.to_owned(),
        };
        let metrics = &telemetry.metrics;
        metrics
            .reconcile_duration
            .get_or_create(&by)
            .observe(started.elapsed().as_secs_f64());
        let until = match outcome {
            Ok(outcome) => {
                for repair in &outcome.repairs {
                    tracing::info!(controller = controller.name, %repair, "repaired");
                }
                wait = Duration::ZERO;
                let has_repaired = !outcome.repairs.is_empty();
                let slowed = pace.after(has_repaired && !has_new_inputs, started);
                if has_repaired {
                    metrics.repairs.get_or_create(&by).inc();
                }
                match outcome.failure {
                    Some(failure) => telemetry.conditions.fails(controller.condition, failure),
                    None => telemetry
                        .conditions
                        .holds(controller.condition, outcome.message),
                }
                slowed
            }
            Err(message) => {
                metrics.reconcile_errors.get_or_create(&by).inc();
                telemetry.conditions.fails(controller.condition, message);
                wait = (wait * 2).clamp(FIRST_WAIT, LONGEST_WAIT);
                AFTER_FAILURE
            }
        };
        // Events that arrive meanwhile are handled by one reconcile.
        let due = tokio::time::Instant::now() + until;
        let next = if wait.is_zero() {
            controller.interval
        } else {
            wait
        };
        has_new_inputs = tokio::select! {
            () = shutdown.cancelled() => return,
            changed = inputs.changed() => match changed {
                Ok(()) => true,
                Err(_) => return,
            },
            _ = timeout(next, controller.changed.notified()) => false,
        };
        let due = due.max(tokio::time::Instant::now() + DEBOUNCE);
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = sleep_until(due) => {}
        }
        has_new_inputs |= inputs.has_changed();
    }
}

/// Slows down repairs that do not last.
#[derive(Default)]
struct Pace {
    last_repair: Option<Instant>,
    in_a_row: u32,
}

impl Pace {
    /// The least delay before the next reconcile.
    fn after(&mut self, has_repaired: bool, now: Instant) -> Duration {
        if !has_repaired {
            return DEBOUNCE;
        }
        let is_soon = self.last_repair.is_some_and(|last| now - last < FIGHT);
        self.in_a_row = if is_soon { self.in_a_row + 1 } else { 0 };
        self.last_repair = Some(now);
        match self.in_a_row.checked_sub(TOLERATED_FIGHTS) {
            None => DEBOUNCE,
            Some(0) => {
                tracing::warn!("another program keeps undoing our repairs; repairing less often");
                FIRST_WAIT
            }
            Some(more) => (FIRST_WAIT * (more + 1)).min(LONGEST_FIGHT_WAIT),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fight_is_slowed_down_until_it_ends() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        for _ in 0..TOLERATED_FIGHTS {
            assert_eq!(pace.after(true, now), DEBOUNCE);
            now += DEBOUNCE;
        }
        let waits: Vec<Duration> = (0..6)
            .map(|_| {
                let wait = pace.after(true, now);
                now += wait;
                wait
            })
            .collect();
        assert_eq!(waits[0], FIRST_WAIT);
        assert_eq!(waits[5], LONGEST_FIGHT_WAIT);
        now += FIGHT;
        assert_eq!(pace.after(true, now), DEBOUNCE);
    }

    #[tokio::test]
    async fn frequent_new_inputs_are_no_fight() {
        let telemetry = Telemetry {
            conditions: Arc::new(Conditions::default()),
            metrics: Arc::new(Metrics::new()),
        };
        let controller = Controller {
            name: "test",
            condition: Condition::NetworkReady,
            changed: Arc::new(Notify::new()),
            interval: Duration::from_mins(1),
        };
        let settings = watch::Sender::new(0);
        let (done, mut passes) = tokio::sync::mpsc::unbounded_channel();
        let end = CancellationToken::new();
        let running = run(
            controller,
            telemetry,
            settings.subscribe(),
            end.clone(),
            move |now| {
                done.send(now).map_err(|error| error.to_string())?;
                Ok(Reconciled {
                    message: String::new(),
                    repairs: vec!["something".to_owned()],
                    failure: None,
                })
            },
        );
        let task = tokio::spawn(running);
        let began = Instant::now();
        let last = TOLERATED_FIGHTS + 5;
        for nth in 1..=last {
            assert_eq!(passes.recv().await, Some(nth - 1));
            settings.send_replace(nth);
        }
        assert_eq!(passes.recv().await, Some(last));
        assert!(
            began.elapsed() < DEBOUNCE * last * 2,
            "{:?}",
            began.elapsed()
        );
        end.cancel();
        task.await.unwrap();
    }

    #[test]
    fn a_reconcile_without_repairs_is_no_fight() {
        let mut pace = Pace::default();
        let now = Instant::now();
        for _ in 0..100 {
            assert_eq!(pace.after(false, now), DEBOUNCE);
        }
        assert_eq!(pace.after(true, now), DEBOUNCE);
    }
}
