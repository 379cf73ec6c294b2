//! The system calls that an event costs a call.

use lab::{Moment, Syscalls};

use crate::scenario::{Scene, call, headcni, native};
use crate::server::Server;

/// Limits for an ADD of one IPv4 address, from the start of the process.
const MAX_WITHOUT_DAEMON: usize = 90;
const MAX_WITH_DAEMON: usize = 96;

fn add(scene: &Scene, name: &str) -> Vec<Moment> {
    let pod = scene.node.pod(name).unwrap();
    let add = call("ADD", &native(), &pod);
    let trace = add.trace(&scene.node, headcni(), Syscalls::All).unwrap();
    trace.outcome.ok().unwrap();
    trace.moments
}

#[test]
fn an_event_costs_a_few_system_calls() {
    let scene = Scene::used();
    let other = scene.node.pod("other").unwrap();
    scene.done("ADD", &native(), &other);
    let without = add(&scene, "p1");
    let server = Server::start(&scene.socket());
    let with = add(&scene, "p2");
    server.await_events(1);
    let count = (without.len(), with.len());
    eprintln!("an ADD for one IPv4 address: {count:?} system calls without and with a daemon");
    assert!(count.0 <= MAX_WITHOUT_DAEMON, "{count:?}");
    assert!(count.1 <= MAX_WITH_DAEMON, "{count:?}");
}
