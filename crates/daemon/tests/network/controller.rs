//! The host network controller, which reconciles on netlink events.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lab::{Netns, eventually};
use node_core::conditions::{Condition, ConditionReport, Conditions};
use node_core::metrics::{ByController, Metrics};
use node_core::reconcile::{self, Controller, Telemetry};
use node_hostnet::{self, ReconcileInput, Signals, monitor};
use tokio::sync::watch as settings;
use tokio_util::sync::CancellationToken;

use crate::fixture::{HostnetNode, SOON};

pub(crate) struct RunningController {
    wanted: settings::Sender<ReconcileInput>,
    conditions: Arc<Conditions>,
    metrics: Arc<Metrics>,
    passes: Arc<AtomicU64>,
    end: CancellationToken,
}

impl RunningController {
    pub(crate) fn want(&self, wanted: ReconcileInput) {
        self.wanted.send(wanted).unwrap();
    }

    /// Whether everything that a reconcile sets up is there.
    pub(crate) fn is_in_place(&self) -> bool {
        let state = self.state();
        state.is_true() || state.message.starts_with("other nodes are unreachable: ")
    }

    /// Whether the mesh interface, which tailscaled creates, is there as well.
    pub(crate) fn is_ready(&self) -> bool {
        self.state().is_true()
    }

    fn state(&self) -> ConditionReport {
        let states = self.conditions.snapshot();
        let mut states = states.into_iter();
        let state = states.find(|(condition, _)| *condition == Condition::NetworkReady);
        state.unwrap().1
    }

    pub(crate) fn reconciles(&self) -> u64 {
        self.passes.load(Ordering::SeqCst)
    }

    /// Reconciles with repairs, or with errors.
    pub(crate) fn repairs(&self) -> u64 {
        let by = ByController {
            controller: "network".to_owned(),
        };
        let metrics = &self.metrics;
        let repaired = metrics.repairs.get_or_create(&by).get();
        repaired + metrics.reconcile_errors.get_or_create(&by).get()
    }

    /// Waits until no more events trigger a reconcile.
    #[track_caller]
    pub(crate) fn settle(&self) {
        let mut last = (self.reconciles(), Instant::now());
        let is_settled = || {
            if self.reconciles() != last.0 {
                last = (self.reconciles(), Instant::now());
            }
            let is_long = last.1.elapsed() > Duration::from_millis(300);
            (is_long && self.is_in_place()).then_some(())
        };
        eventually(lab::DEADLINE, "settled", is_settled).unwrap();
    }
}

/// Does `work` while the controller runs. It reconciles only on events.
pub(crate) fn with_controller<T>(
    fixture: &HostnetNode,
    wanted: ReconcileInput,
    work: impl FnOnce(&RunningController) -> T,
) -> T {
    let (sender, receiver) = settings::channel(wanted);
    let controller = RunningController {
        wanted: sender,
        conditions: Arc::default(),
        metrics: Arc::new(Metrics::default()),
        passes: Arc::default(),
        end: CancellationToken::new(),
    };
    let reports = Telemetry {
        conditions: Arc::clone(&controller.conditions),
        metrics: Arc::clone(&controller.metrics),
    };
    let (end, place) = (controller.end.clone(), fixture.place());
    let passes = Arc::clone(&controller.passes);
    let signals = Signals::default();
    let part = Controller {
        name: "network",
        condition: Condition::NetworkReady,
        changed: Arc::clone(&signals.hostnet),
        interval: Duration::from_hours(1),
    };
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let awaiting = signals.clone();
            let pass = move |wanted: ReconcileInput| {
                awaiting.set_desired(&wanted.desired);
                passes.fetch_add(1, Ordering::SeqCst);
                node_hostnet::reconcile(&place, &wanted)
                    .map_err(|error| node_core::error::display_chain(&error))
            };
            tokio::join!(
                monitor(signals, end.clone()),
                reconcile::run(part, reports, receiver, end, pass)
            )
        });
    };
    thread::scope(|scope| {
        // Stops the controller also when the work panics.
        let _ends = controller.end.clone().drop_guard();
        scope.spawn(|| fixture.node.enter(run).unwrap());
        let is_in_place = || controller.is_in_place().then_some(());
        eventually(lab::DEADLINE, "the network in place", is_in_place).unwrap();
        controller.settle();
        work(&controller)
    })
}

#[test]
fn unrelated_changes_trigger_no_reconcile() {
    let fixture = HostnetNode::new();
    with_controller(&fixture, crate::fixture::wanted(), |controller| {
        let before = (controller.reconciles(), controller.repairs());
        fixture.run("ip link add v0 type veth peer name v1; ip link set v0 up; ip link delete v0");
        fixture.run(
            "nft add table ip other; nft add chain ip other c; nft add rule ip other c accept",
        );
        fixture.run("ip route add 198.51.100.0/24 dev lo; ip route delete 198.51.100.0/24");
        fixture.run("ip rule add priority 77 lookup 7; ip rule delete priority 77");
        // An event after all of these.
        fixture.run("ip rule delete priority 5190");
        let is_back = || (controller.repairs() == before.1 + 1).then_some(());
        eventually(SOON, "the rule", is_back).unwrap();
        controller.settle();
        // One that repairs, and one for its own change.
        assert!(
            controller.reconciles() <= before.0 + 2,
            "{} reconciles",
            controller.reconciles() - before.0
        );
    });
}

#[test]
fn a_changed_desired_state_is_applied_at_once() {
    let fixture = HostnetNode::new();
    with_controller(&fixture, crate::fixture::wanted(), |controller| {
        let mut config = node_config::Config::default();
        config.network.masquerade = false;
        controller.want(crate::fixture::wanted_by(&config));
        let is_off = || {
            let set = fixture.run("nft list set inet headcni unmasqueraded");
            set.contains("elements").then_some(())
        };
        eventually(SOON, "no masquerade", is_off).unwrap();
    });
}

#[test]
fn reconciles_are_rate_limited_against_repeated_deletions() {
    let fixture = HostnetNode::new();
    with_controller(&fixture, crate::fixture::wanted(), |controller| {
        let before = controller.reconciles();
        let rounds = "end=$(($(date +%s) + 6)); while [ $(date +%s) -lt $end ]; do \
                      ip rule delete priority 5190 2>/dev/null; done; true";
        fixture.run(rounds);
        let reconciles = controller.reconciles() - before;
        assert!(
            (3..40).contains(&reconciles),
            "{reconciles} reconciles in six seconds"
        );
        let is_back = || fixture.run("ip rule").contains("5190:").then_some(());
        eventually(Duration::from_secs(10), "the rule", is_back).unwrap();
    });
}
