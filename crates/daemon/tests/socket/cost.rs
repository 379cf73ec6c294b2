//! What telling the daemon costs a call.

use lab::{Moment, Syscalls};

use crate::scene::{Scene, call, headcni, native};
use crate::server::Server;

/// How many system calls an ADD for one IPv4 address may make, from its own start on.
const MOST_WITHOUT: usize = 90;
const MOST_WITH: usize = 93;

fn add(scene: &Scene, name: &str) -> Vec<Moment> {
    let pod = scene.node.pod(name).unwrap();
    let add = call("ADD", &native(), &pod);
    let trace = add.trace(&scene.node, headcni(), Syscalls::All).unwrap();
    trace.outcome.ok().unwrap();
    trace.moments
}

#[test]
fn without_a_daemon_it_is_one_system_call_and_with_one_it_is_four() {
    let scene = Scene::used();
    let other = scene.node.pod("other").unwrap();
    scene.done("ADD", &native(), &other);
    let without = add(&scene, "p1");
    // Which is not the one that looks for the node's subnets.
    let is_about_daemon =
        |moment: &&Moment| moment.line.contains("/run/headcni") && !moment.line.contains(".env");
    let about: Vec<_> = without.iter().filter(is_about_daemon).collect();
    assert_eq!(about.len(), 1, "{about:?}");
    assert!(without.len() <= MOST_WITHOUT, "{}", without.len());

    let server = Server::start(&scene.socket());
    let with = add(&scene, "p2");
    server.await_events(1);
    eprintln!(
        "an ADD for one IPv4 address: {} system calls, with a daemon {}",
        without.len(),
        with.len()
    );
    assert_eq!(with.len(), without.len() + 3);
    assert!(with.len() <= MOST_WITH, "{}", with.len());
}
