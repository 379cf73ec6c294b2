//! The daemon is killed at random while pods come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::messages::PodState;
use lab::tools;

use crate::scene::Scene;

const CALLS: usize = 500;
const PODS: usize = 25;

/// Numbers that differ from run to run, and are told when a test fails.
struct Dice(u64);

impl Dice {
    fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let seed = u64::from(now.subsec_nanos()) << 20 | u64::from(std::process::id());
        eprintln!("the dice began with {seed}");
        Self(seed)
    }

    /// A number below `limit`: xorshift, <https://www.jstatsoft.org/article/view/v008i14>.
    fn roll(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

#[test]
fn kill_9_at_random_during_500_calls_harms_nothing() {
    let scene = &Scene::with("network: {podCIDR: {nodeLocal: 10.244.4.0/22, base: 10.244.0.0/16}}");
    scene.start().stop();
    let pods: Vec<_> = (0..PODS)
        .map(|nth| scene.node.pod(&format!("p{nth}")).unwrap())
        .collect();
    let conf = scene.conf();
    let is_over = AtomicBool::new(false);
    let mut dice = Dice::new();
    let mut attached: BTreeMap<usize, (String, String)> = BTreeMap::new();
    thread::scope(|scope| {
        let mut of_killer = Dice(dice.roll(u64::MAX) | 1);
        let is_over = &is_over;
        let killer = scope.spawn(move || {
            let mut kills = 0;
            while !is_over.load(Ordering::Relaxed) {
                let daemon = scene.launch();
                thread::sleep(Duration::from_millis(30 + of_killer.roll(500)));
                daemon.kill();
                kills += 1;
            }
            kills
        });
        for nth in 0..CALLS {
            let which = usize::try_from(dice.roll(PODS as u64)).unwrap();
            let pod = &pods[which];
            let call = |verb: &str, container: &str| {
                let call = scene
                    .call(verb)
                    .pod(pod)
                    .container_id(container)
                    .conf(&conf);
                call.run(&scene.node, tools::headcni()).unwrap()
            };
            if let Some((container, _)) = attached.remove(&which) {
                call("DEL", &container).ok().unwrap();
                continue;
            }
            let container = format!("c{nth}");
            let result = call("ADD", &container).ok_json().unwrap();
            let address = result["ips"][0]["address"].as_str().unwrap();
            let address = address.split('/').next().unwrap().to_owned();
            attached.insert(which, (container, address));
        }
        is_over.store(true, Ordering::Relaxed);
        let kills = killer.join().unwrap();
        assert!(kills > 5, "it was killed {kills} times only");
    });

    let daemon = scene.start();
    let known = daemon.client().pods().unwrap();
    assert!(
        known.iter().all(|pod| pod.state == PodState::AttachedPod),
        "{known:?}"
    );
    let known: BTreeSet<(String, String)> = known
        .into_iter()
        .map(|pod| (pod.container, pod.ips[0].to_string()))
        .collect();
    let wanted: BTreeSet<_> = attached.values().cloned().collect();
    assert_eq!(known, wanted);
    let addresses: BTreeSet<String> = wanted.iter().map(|(_, address)| address.clone()).collect();
    assert_eq!(BTreeSet::from_iter(scene.leases()), addresses);
    assert_eq!(scene.links().len(), wanted.len());
    assert_eq!(scene.records().len(), wanted.len());
    for (which, (container, _)) in attached {
        let call = scene
            .call("DEL")
            .pod(&pods[which])
            .container_id(&container)
            .conf(&conf);
        call.run(&scene.node, tools::headcni())
            .unwrap()
            .ok()
            .unwrap();
    }
    scene.eventually("nobody is known any more", || {
        daemon.client().pods().unwrap().is_empty().then_some(())
    });
    assert!(scene.leases().is_empty() && scene.links().is_empty() && scene.records().is_empty());
}
