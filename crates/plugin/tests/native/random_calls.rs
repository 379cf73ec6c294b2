//! Two thousand random calls, some killed, some at once: nothing remains, nobody is harmed.

use lab::scenario::PluginNode;
use std::collections::BTreeSet;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use lab::{Call, Ignore, Moment, Netns, Syscalls};
use serde_json::{Value, json};

use crate::kill_sweep::collect;
use crate::networks::{LEASE_DIR, call, dual_stack, headcni, ip, used_node, with};
use crate::node_state::snapshot;
use crate::pod_lifecycle::{Life, State};
use crate::seeded_random::Dice;

const WORKERS: u64 = 4;
const PODS_PER_WORKER: u64 = 2;
/// After each of these everybody stops, and one looks whether all is well.
const EPOCHS: u64 = 10;
const ROUNDS_PER_EPOCH: u64 = 50;

/// Few addresses, so that each has many pods after one another.
fn network() -> Value {
    let ranges = json!([[{ "subnet": "10.9.0.0/28" }], [{ "subnet": "fd00:9::/64" }]]);
    let ipam = json!({ "type": "headcni-ipam", "ranges": ranges });
    with(dual_stack(), "ipam", ipam)
}

/// The network for pod number `pod`: every other one has hostPorts.
fn conf_of(pod: u64) -> Value {
    let conf = with(
        network(),
        "capabilities",
        json!({ "portMappings": true, "bandwidth": true }),
    );
    if !pod.is_multiple_of(2) {
        return conf;
    }
    let (tcp, udp) = (8000 + pod, 5000 + pod);
    let asked = json!({
        "portMappings": [
            { "hostPort": tcp, "containerPort": 80, "protocol": "tcp" },
            { "hostPort": udp, "containerPort": 53, "protocol": "udp" },
        ],
        "bandwidth": { "ingressRate": 80_000_000, "ingressBurst": 80_000_000 },
    });
    with(conf, "runtimeConfig", asked)
}

#[test]
fn two_thousand_random_rounds_leave_nothing() {
    const { assert!(WORKERS * EPOCHS * ROUNDS_PER_EPOCH == 2000) };
    let seed = match std::env::var("HEADCNI_ROUNDS_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs(),
    };
    eprintln!("HEADCNI_ROUNDS_SEED={seed}");
    let plugin = used_node(&conf_of(0));
    let index = format!("{LEASE_DIR}/.headcni/used.10.9.0.0-28");
    let before = snapshot(&plugin).ignoring(Ignore::new().path(&index));
    let life = |number| {
        let name = format!("pod{number}");
        let pod = plugin.node.pod(&name).unwrap();
        Life::new(&plugin, pod, conf_of(number))
    };
    let mut lives: Vec<_> = (0..WORKERS * PODS_PER_WORKER).map(life).collect();
    let names: Vec<_> = lives.iter().map(|life| life.name().to_owned()).collect();
    let moments = moments(&plugin);

    for epoch in 0..EPOCHS {
        let mut shares = lives.chunks_mut(usize::try_from(PODS_PER_WORKER).unwrap());
        thread::scope(|scope| {
            for worker in 0..WORKERS {
                let mine = shares.next().unwrap();
                let (names, moments) = (&names, &moments);
                let mut dice = Dice::new(seed + 1000 * epoch + worker);
                scope.spawn(move || {
                    for _ in 0..ROUNDS_PER_EPOCH {
                        let number = dice.below(PODS_PER_WORKER);
                        let life = &mut mine[usize::try_from(number).unwrap()];
                        round(life, &mut dice, names, moments);
                    }
                });
            }
        });
        assert_all_is_well(&plugin, &lives);
    }

    let (some, others) = lives.split_at_mut(4);
    for life in some {
        life.del();
    }
    for life in others {
        life.pod().delete().unwrap();
    }
    collect(&plugin, &network(), &[]).ok().unwrap();
    plugin.node.assert_unchanged(&before);
}

/// When an ADD and a DEL can be killed.
fn moments(plugin: &PluginNode) -> [Vec<Moment>; 2] {
    let pod = plugin.pod("traced");
    let moments = ["ADD", "DEL"].map(|verb| {
        let call: Call = call(verb, &conf_of(100)).pod(&pod);
        let trace = call.trace(&plugin.node, headcni(), Syscalls::All).unwrap();
        trace.outcome.ok().unwrap();
        trace.moments
    });
    pod.delete().unwrap();
    moments
}

/// Does something to a pod.
fn round(life: &mut Life, dice: &mut Dice, names: &[String], moments: &[Vec<Moment>; 2]) {
    match dice.below(100) {
        0..30 => life.add(),
        30..45 => life.del(),
        45..50 => life.del_twice_at_once(),
        50..55 => life.check(),
        55..70 => life.add_killed_after(dice.micros(6000)),
        70..80 => life.del_killed_after(dice.micros(6000)),
        80..83 => life.add_killed_at(dice.one_of(&moments[0])),
        83..86 => life.del_killed_at(dice.one_of(&moments[1])),
        86..90 => life.add_and_del_at_once(),
        90..93 => life.collected(names),
        93..96 => life.replace_namespace(),
        _ => life.ping(),
    }
}

/// Nobody is at work: whoever lives has addresses of its own, and answers.
fn assert_all_is_well(plugin: &PluginNode, lives: &[Life]) {
    let mut addresses = BTreeSet::new();
    for life in lives {
        let State::Attached(result) = life.state() else {
            continue;
        };
        for family in [0, 1] {
            let address = ip(result, family);
            plugin.node.ping(&address).unwrap();
            assert!(
                addresses.insert(address.clone()),
                "{address} is there twice"
            );
        }
    }
}
