//! What the plugin could not say, and how the daemon comes to know of it.

use std::fs::File;
use std::io::Write;

use api::event::Event;
use api::messages::{MAX_SPOOL_BYTES, Request};
use daemon::socket::News;
use lab::{Netns, eventually};

use crate::scene::{SOCKET, SPOOL, Scene, native, with};
use crate::server::{SOON, Server};

#[test]
fn without_a_daemon_nothing_is_left_behind() {
    let scene = Scene::new();
    let pod = scene.node.pod("p").unwrap();
    scene.done("ADD", &native(), &pod);
    scene.done("DEL", &native(), &pod);
    assert!(!scene.node.has("/run/headcni"));
}

#[test]
fn a_directory_with_a_file_of_a_person_is_no_daemon() {
    let scene = Scene::new();
    scene.node.write("/run/headcni/notes", "").unwrap();
    let pod = scene.node.pod("p").unwrap();
    scene.done("ADD", &native(), &pod);
    scene.done("DEL", &native(), &pod);
    assert!(!scene.node.has(SPOOL));
}

#[test]
fn a_daemon_that_the_configuration_names_is_told_of_what_was_before_it() {
    let scene = Scene::new();
    let conf = with(native(), "daemon_socket", SOCKET.into());
    let pod = scene.node.pod("p").unwrap();
    scene.done("ADD", &conf, &pod);
    let server = Server::start(&scene.socket());
    server.await_events(1);
}

#[test]
fn what_a_daemon_missed_is_told_when_it_starts_again() {
    let scene = Scene::new().deserted();
    let pod = scene.node.pod("p").unwrap();
    scene.done("ADD", &native(), &pod);
    scene.done("DEL", &native(), &pod);
    let mode = scene.node.run(["stat", "-c", "%a %u", SPOOL]).unwrap();
    assert_eq!(mode.stdout.trim(), "600 0");
    let server = Server::start(&scene.socket());
    let events = server.await_events(2);
    assert_eq!((&*events[0].verb, &*events[1].verb), ("ADD", "DEL"));
    server.await_metric("headcni_plugin_events_total{request=\"spool\"} 2");
    assert_eq!(scene.node.read(SPOOL).unwrap(), "");
    assert!(!server.news().contains(&News::Missed));
}

#[test]
fn a_daemon_that_was_killed_is_told_later() {
    let scene = Scene::new();
    let pod = scene.node.pod("p").unwrap();
    drop(Server::start(&scene.socket()));
    assert!(scene.socket().exists(), "a stale socket");
    scene.done("ADD", &native(), &pod);
    let server = Server::start(&scene.socket());
    scene.done("DEL", &native(), &pod);
    let mut verbs: Vec<_> = server
        .await_events(2)
        .into_iter()
        .map(|event| event.verb)
        .collect();
    verbs.sort();
    assert_eq!(verbs, ["ADD", "DEL"]);
}

#[test]
fn the_spool_is_read_while_the_daemon_runs() {
    let scene = Scene::new().deserted();
    let pod = scene.node.pod("p").unwrap();
    scene.done("ADD", &native(), &pod);
    let line = scene.node.read(SPOOL).unwrap();
    let server = Server::start(&scene.socket());
    server.await_events(1);
    scene.node.write(SPOOL, line).unwrap();
    server.await_events(2);
}

/// The line of an event, of this length.
fn line_of(bytes: usize) -> Vec<u8> {
    let line = |padding| {
        let container = "x".repeat(padding);
        let event = Event {
            container,
            ..Event::default()
        };
        Request::event_line(&event).unwrap()
    };
    line(bytes - line(0).len())
}

#[test]
fn a_full_spool_stays_within_its_bound_and_the_daemon_knows_that_it_missed_something() {
    let scene = Scene::new().deserted();
    let pod = scene.node.pod("p").unwrap();
    scene
        .node
        .write(SPOOL, line_of(1 << 15).repeat(32))
        .unwrap();
    let outcome = scene.done("ADD", &native(), &pod);
    assert_eq!(outcome.stderr, "", "nobody is to worry");
    let length = || scene.node.path(SPOOL).metadata().unwrap().len();
    assert_eq!(length(), MAX_SPOOL_BYTES);
    let server = Server::start(&scene.socket());
    server.await_events(32);
    eventually(SOON, "the last news", || server.news().get(32).cloned()).unwrap();
    assert_eq!(server.news()[32..], [News::Missed]);
    assert_eq!(length(), 0);
}

#[test]
fn a_spool_that_somebody_else_has_locked_delays_no_pod() {
    let scene = Scene::used().deserted();
    let (one, two) = (scene.node.pod("p1").unwrap(), scene.node.pod("p2").unwrap());
    scene.done("ADD", &native(), &one);
    let holder = File::open(scene.node.path(SPOOL)).unwrap();
    holder.lock().unwrap();
    let outcome = scene.done("ADD", &native(), &two);
    assert_eq!(outcome.stderr, "");
    assert_eq!(scene.node.read(SPOOL).unwrap().lines().count(), 1);
    // Nor does the daemon wait for it: it answers, and comes again.
    let server = Server::start(&scene.socket());
    scene.done("DEL", &native(), &two);
    assert_eq!(server.await_events(1)[0].verb, "DEL");
    drop(holder);
    server.await_events(2);
}

#[test]
fn damaged_lines_are_counted_and_the_others_told() {
    let scene = Scene::new().deserted();
    let pod = scene.node.pod("p").unwrap();
    scene.done("ADD", &native(), &pod);
    let mut spool = File::options()
        .append(true)
        .open(scene.node.path(SPOOL))
        .unwrap();
    spool.write_all(b"half a li\n\xff\xfe\n").unwrap();
    scene.done("DEL", &native(), &pod);
    let server = Server::start(&scene.socket());
    server.await_events(2);
    server.await_metric("headcni_plugin_events_total{request=\"damaged\"} 2");
    assert!(server.news().contains(&News::Missed));
}

#[test]
fn a_pipe_or_a_link_in_the_spools_place_delays_no_pod() {
    let scene = Scene::used().deserted();
    let pod = scene.node.pod("p").unwrap();
    scene.node.run(["mkfifo", SPOOL]).unwrap();
    scene.done("ADD", &native(), &pod);
    scene.node.run(["rm", SPOOL]).unwrap();
    scene.node.run(["ln", "-s", "/etc/victim", SPOOL]).unwrap();
    scene.done("DEL", &native(), &pod);
    assert!(!scene.node.has("/etc/victim"));
    let server = Server::start(&scene.socket());
    scene.done("ADD", &native(), &pod);
    server.await_events(1);
}
