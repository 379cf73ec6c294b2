//! A daemon that does not come to it: stopped, overrun, or slow to consume.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use api::client::ClientError;
use api::event::Event;
use api::messages::Request;
use daemon::socket::News;
use lab::{Netns, eventually};

use crate::scene::{Client, SPOOL, Scene, native};
use crate::server::{Process, SOON, Server};

/// A pod may not be delayed by more than a fraction of this, however busy the machine is.
const NO_DELAY: Duration = Duration::from_secs(2);

#[test]
fn a_stopped_daemon_delays_no_pod_and_is_told_when_it_goes_on() {
    let scene = Scene::used();
    let server = Process::start(&scene.socket());
    server.stop();
    let pod = scene.node.pod("p").unwrap();
    for verb in ["ADD", "DEL"] {
        let outcome = scene.done(verb, &native(), &pod);
        assert!(outcome.elapsed < NO_DELAY, "{:?}", outcome.elapsed);
    }
    assert!(!scene.node.has(SPOOL), "the kernel keeps them");
    server.go_on();
    assert_eq!(server.await_told(2), ["ADD p", "DEL p"]);
}

/// A daemon that lets nobody in, and whoever is before us.
fn full_queue(scene: &Scene) -> (UnixListener, Client) {
    std::fs::create_dir(scene.node.path("/run/headcni")).unwrap();
    let listener = UnixListener::bind(scene.socket()).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    (listener, Client::connect(&scene.socket()))
}

#[test]
fn a_full_queue_delays_no_pod_and_the_event_is_spooled() {
    let scene = Scene::used();
    let (listener, _waiting) = full_queue(&scene);
    let pod = scene.node.pod("p").unwrap();
    let outcome = scene.done("ADD", &native(), &pod);
    assert!(outcome.elapsed < NO_DELAY, "{:?}", outcome.elapsed);
    assert_eq!(outcome.stderr, "");
    assert_eq!(scene.node.read(SPOOL).unwrap().lines().count(), 1);
    drop(listener);
    let server = Server::start(&scene.socket());
    server.await_events(1);
}

#[test]
fn a_full_queue_is_waited_for_no_longer_than_a_person_wants() {
    let scene = Scene::new();
    let _queue = full_queue(&scene);
    let error = api::client::Client::connect(&scene.socket(), Duration::from_millis(200));
    let error = error.unwrap_err();
    assert!(matches!(error, ClientError::Late { .. }), "{error:?}");
}

/// Tells an event as the plugin does.
fn tell(path: &Path, number: usize) {
    let event = Event {
        verb: "ADD".to_owned(),
        container: number.to_string(),
        ..Event::default()
    };
    Client::connect(path).say(&Request::event_line(&event).unwrap());
}

#[test]
fn nothing_is_lost_while_the_consumer_lags() {
    const EVENTS: usize = 1000;
    let scene = Scene::new();
    let server = Server::start_lagging(&scene.socket());
    for number in 0..EVENTS {
        tell(&scene.socket(), number);
    }
    assert_eq!(server.events().len(), 0);
    server.catch_up();
    let mut events = server.await_events(EVENTS);
    events.sort_by_key(|event| event.container.parse::<usize>().unwrap());
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event.container, number.to_string());
    }
    assert_eq!(server.metrics.refused_clients.get(), 0);
}

#[test]
fn questions_are_answered_while_the_consumer_lags() {
    let scene = Scene::new();
    let server = Server::start_lagging(&scene.socket());
    for number in 0..20 {
        tell(&scene.socket(), number);
    }
    let mut client = api::client::Client::connect(&scene.socket(), SOON).unwrap();
    assert_eq!(client.status().unwrap().node_name, "n1");
    server.catch_up();
    server.await_events(20);
}

#[test]
fn a_socket_that_somebody_took_away_is_opened_again() {
    let scene = Scene::new();
    let server = Server::start(&scene.socket());
    scene.node.run(["rm", "-r", "/run/headcni"]).unwrap();
    eventually(SOON, "a new socket", || {
        scene.socket().exists().then_some(())
    })
    .unwrap();
    tell(&scene.socket(), 1);
    server.await_events(1);
    assert!(
        server.news().contains(&News::Missed),
        "something may have happened meanwhile"
    );
}
