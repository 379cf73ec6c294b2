//! A node whose network is kept in place while others are at it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lab::{Netns, eventually};
use node_core::conditions::{Condition, Conditions, State};
use node_core::metrics::{ByController, Metrics};
use node_core::reconcile::{self, Controller, Telemetry};
use node_hostnet::{self, ReconcileInput, Signals, monitor};
use tokio::sync::watch as settings;
use tokio_util::sync::CancellationToken;

use crate::scene::{SOON, Scene};

/// The keeper at work.
pub(crate) struct Kept {
    wanted: settings::Sender<ReconcileInput>,
    conditions: Arc<Conditions>,
    metrics: Arc<Metrics>,
    passes: Arc<AtomicU64>,
    end: CancellationToken,
}

impl Kept {
    pub(crate) fn want(&self, wanted: ReconcileInput) {
        self.wanted.send(wanted).unwrap();
    }

    /// Whether all is there that passes make.
    pub(crate) fn is_in_place(&self) -> bool {
        let state = self.state();
        state.holds || state.message.starts_with("other nodes can't be reached")
    }

    /// Whether the mesh's link, which is somebody else's to make, is there as well.
    pub(crate) fn is_ready(&self) -> bool {
        self.state().holds
    }

    fn state(&self) -> State {
        let states = self.conditions.snapshot();
        let mut states = states.into_iter();
        let state = states.find(|(condition, _)| *condition == Condition::NetworkReady);
        state.unwrap().1
    }

    /// How many passes were made.
    pub(crate) fn passes(&self) -> u64 {
        self.passes.load(Ordering::SeqCst)
    }

    /// How many passes had something to repair, or tried to.
    pub(crate) fn repairs(&self) -> u64 {
        let by = ByController {
            controller: "network".to_owned(),
        };
        let metrics = &self.metrics;
        let repaired = metrics.repairs.get_or_create(&by).get();
        repaired + metrics.reconcile_errors.get_or_create(&by).get()
    }

    /// Waits until a pass has nothing to do, so that no event is under way any more.
    #[track_caller]
    pub(crate) fn settle(&self) {
        let mut last = (self.passes(), Instant::now());
        let is_calm = || {
            if self.passes() != last.0 {
                last = (self.passes(), Instant::now());
            }
            let is_long = last.1.elapsed() > Duration::from_millis(300);
            (is_long && self.is_in_place()).then_some(())
        };
        eventually(lab::DEADLINE, "calm", is_calm).unwrap();
    }
}

/// Does `work` while the network is kept as `wanted` says; a pass is made only when something has
/// changed.
pub(crate) fn while_kept<T>(
    scene: &Scene,
    wanted: ReconcileInput,
    work: impl FnOnce(&Kept) -> T,
) -> T {
    let (sender, receiver) = settings::channel(wanted);
    let kept = Kept {
        wanted: sender,
        conditions: Arc::default(),
        metrics: Arc::new(Metrics::default()),
        passes: Arc::default(),
        end: CancellationToken::new(),
    };
    let reports = Telemetry {
        conditions: Arc::clone(&kept.conditions),
        metrics: Arc::clone(&kept.metrics),
    };
    let (end, place) = (kept.end.clone(), scene.place());
    let passes = Arc::clone(&kept.passes);
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
        // Ends the keeper also when the work panics.
        let _ends = kept.end.clone().drop_guard();
        scope.spawn(|| scene.node.enter(run).unwrap());
        let is_in_place = || kept.is_in_place().then_some(());
        eventually(lab::DEADLINE, "the network in place", is_in_place).unwrap();
        kept.settle();
        work(&kept)
    })
}

#[test]
fn a_quiet_node_costs_no_passes() {
    let scene = Scene::new();
    while_kept(&scene, crate::scene::wanted(), |kept| {
        let before = (kept.passes(), kept.repairs());
        // Others are busy with their own.
        scene.run("ip link add v0 type veth peer name v1; ip link set v0 up; ip link delete v0");
        scene.run(
            "nft add table ip other; nft add chain ip other c; nft add rule ip other c accept",
        );
        scene.run("ip route add 198.51.100.0/24 dev lo; ip route delete 198.51.100.0/24");
        scene.run("ip rule add priority 77 lookup 7; ip rule delete priority 77");
        // Something that is told after all that.
        scene.run("ip rule delete priority 5190");
        let is_back = || (kept.repairs() == before.1 + 1).then_some(());
        eventually(SOON, "the rule", is_back).unwrap();
        kept.settle();
        // One that repaired, and one that our own change has caused.
        assert!(
            kept.passes() <= before.0 + 2,
            "{} passes",
            kept.passes() - before.0
        );
    });
}

#[test]
fn another_network_is_made_as_soon_as_it_is_wanted() {
    let scene = Scene::new();
    while_kept(&scene, crate::scene::wanted(), |kept| {
        let mut config = node_config::Config::default();
        config.network.masquerade = false;
        kept.want(crate::scene::wanted_by(&config));
        let is_off = || {
            let set = scene.run("nft list set inet headcni unmasqueraded");
            set.contains("elements").then_some(())
        };
        eventually(SOON, "no masquerade", is_off).unwrap();
    });
}

#[test]
fn who_undoes_us_again_and_again_does_not_make_us_run_in_circles() {
    let scene = Scene::new();
    while_kept(&scene, crate::scene::wanted(), |kept| {
        let before = kept.passes();
        // As fast as it can, for a while.
        let rounds = "end=$(($(date +%s) + 6)); while [ $(date +%s) -lt $end ]; do \
                      ip rule delete priority 5190 2>/dev/null; done; true";
        scene.run(rounds);
        let passes = kept.passes() - before;
        assert!((3..40).contains(&passes), "{passes} passes in six seconds");
        let is_back = || scene.run("ip rule").contains("5190:").then_some(());
        eventually(Duration::from_secs(10), "the rule", is_back).unwrap();
    });
}
