//! The daemon is killed at random times during CNI calls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::messages::PodState;
use lab::scenario::DaemonNode;
use lab::tools;

use crate::client;

const CALLS: usize = 500;
const PODS: usize = 25;

/// A random generator whose seed is printed.
struct Random(u64);

impl Random {
    fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let seed = u64::from(now.subsec_nanos()) << 20 | u64::from(std::process::id());
        eprintln!("seed: {seed}");
        Self(seed)
    }

    /// A number below `limit`: xorshift, <https://www.jstatsoft.org/article/view/v008i14>.
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

#[test]
fn random_sigkills_of_the_daemon_during_500_cni_calls_leak_nothing() {
    let node = &DaemonNode::with_config(
        "network: {podCIDR: {nodeLocal: 10.244.4.0/22, base: 10.244.0.0/16}}",
    );
    node.start_daemon().stop();
    let pods: Vec<_> = (0..PODS).map(|nth| node.pod(&format!("p{nth}"))).collect();
    let conf = node.cni_conf();
    let is_over = AtomicBool::new(false);
    let mut random = Random::new();
    let mut attached: BTreeMap<usize, (String, String)> = BTreeMap::new();
    thread::scope(|scope| {
        let mut killer_random = Random(random.below(u64::MAX) | 1);
        let is_over = &is_over;
        let killer = scope.spawn(move || {
            let mut kills = 0;
            while !is_over.load(Ordering::Relaxed) {
                let daemon = node.spawn_daemon();
                thread::sleep(Duration::from_millis(30 + killer_random.below(500)));
                daemon.kill();
                kills += 1;
            }
            kills
        });
        for nth in 0..CALLS {
            let which = usize::try_from(random.below(PODS as u64)).unwrap();
            let pod = &pods[which];
            let call = |verb: &str, container: &str| {
                let call = node.call(verb).pod(pod).container_id(container).conf(&conf);
                call.run(&node.node, tools::headcni()).unwrap()
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
        assert!(kills > 5, "only {kills} kills");
    });

    let _daemon = node.start_daemon();
    let listed = client(node).pods().unwrap();
    assert!(
        listed.iter().all(|pod| pod.state == PodState::Attached),
        "{listed:?}"
    );
    let listed: BTreeSet<(String, String)> = listed
        .into_iter()
        .map(|pod| (pod.container, pod.ips[0].to_string()))
        .collect();
    let wanted: BTreeSet<_> = attached.values().cloned().collect();
    assert_eq!(listed, wanted);
    let addresses: BTreeSet<String> = wanted.iter().map(|(_, address)| address.clone()).collect();
    assert_eq!(BTreeSet::from_iter(node.leases()), addresses);
    assert_eq!(node.pod_links().len(), wanted.len());
    assert_eq!(node.records().len(), wanted.len());
    for (which, (container, _)) in attached {
        let call = node
            .call("DEL")
            .pod(&pods[which])
            .container_id(&container)
            .conf(&conf);
        call.run(&node.node, tools::headcni())
            .unwrap()
            .ok()
            .unwrap();
    }
    node.eventually("no pod is listed any more", || {
        client(node).pods().unwrap().is_empty().then_some(())
    });
    assert!(node.leases().is_empty() && node.pod_links().is_empty() && node.records().is_empty());
}
