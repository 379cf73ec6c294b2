//! The daemon's controller of the CNI files: reconciles, watches and reports.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lab::eventually;
use node_cniconf::{Desired, ensure, watch};
use node_core::conditions::{Condition, ConditionReport, Conditions};
use node_core::metrics::Metrics;
use node_core::reconcile::{self, Controller, Telemetry};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The controller runs as long as this lives.
pub(crate) struct Kept {
    pub(crate) conditions: Arc<Conditions>,
    passes: Arc<AtomicUsize>,
    repairs: Arc<AtomicUsize>,
    end: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Kept {
    /// Returns after the first reconcile.
    pub(crate) fn new(desired: Desired) -> Self {
        let conditions = Arc::new(Conditions::default());
        let (passes, repairs) = (Arc::default(), Arc::default());
        let end = CancellationToken::new();
        let reports = Telemetry {
            conditions: Arc::clone(&conditions),
            metrics: Arc::new(Metrics::new()),
        };
        let mut kept = Self {
            conditions,
            passes,
            repairs,
            end,
            thread: None,
        };
        let (passes, repairs) = (Arc::clone(&kept.passes), Arc::clone(&kept.repairs));
        let end = kept.end.clone();
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build();
            let changed = Arc::new(Notify::new());
            let _watch = watch(&desired.dirs, Arc::clone(&changed)).unwrap();
            let part = Controller {
                name: "cniconf",
                condition: Condition::CniConfigWritten,
                changed,
                // Longer than any test, so that repairs are triggered by watches.
                interval: Duration::from_hours(1),
            };
            let (_settings, settings) = tokio::sync::watch::channel(desired);
            let pass = move |desired: Desired| {
                let outcome = ensure(&desired);
                passes.fetch_add(1, Ordering::Relaxed);
                let outcome = outcome.map_err(|error| error.explained())?;
                repairs.fetch_add(usize::from(!outcome.repairs.is_empty()), Ordering::Relaxed);
                Ok(outcome.into())
            };
            runtime
                .unwrap()
                .block_on(reconcile::run(part, reports, settings, end, pass));
        };
        kept.thread = Some(thread::spawn(work));
        let first = || (kept.passes() > 0).then_some(());
        eventually(Duration::from_secs(10), "first pass", first).unwrap();
        kept
    }

    pub(crate) fn passes(&self) -> usize {
        self.passes.load(Ordering::Relaxed)
    }

    pub(crate) fn repairs(&self) -> usize {
        self.repairs.load(Ordering::Relaxed)
    }

    pub(crate) fn state(&self) -> ConditionReport {
        let all = self.conditions.snapshot();
        let ours = all
            .into_iter()
            .find(|(which, _)| *which == Condition::CniConfigWritten);
        ours.unwrap().1
    }

    /// Returns when no more reconciles happen. The first one writes, which triggers another.
    pub(crate) fn rest(&self) {
        let still = (0..5).any(|_| !self.exceeds(0, Duration::from_millis(500)));
        assert!(still, "it never comes to rest");
    }

    /// Whether more than so many reconciles happen within a time.
    pub(crate) fn exceeds(&self, passes: usize, time: Duration) -> bool {
        let most = self.passes() + passes;
        eventually(time, "passes", || (self.passes() > most).then_some(())).is_ok()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.end.cancel();
        // The panic was printed already.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
