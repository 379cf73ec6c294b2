//! A daemon that is away, hangs or can't keep up: no pod fails, and each lost event is logged.

use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use api::client::{Client, ClientError};
use api::event::Event;
use api::http::{HttpClient, HttpError};
use api::messages::EVENTS_PATH;
use daemon::socket::MAX_CONNECTIONS;
use lab::{Netns, eventually};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;

use crate::scenario::{LOG, Scene, call, headcni, logging, native};
use crate::server::{Process, SOON, Server};

/// The plugin waits for 200 ms; the rest is for a busy machine.
const MAX_DELAY: Duration = Duration::from_secs(2);
const CLIENTS: usize = 5000;
const PODS: usize = 20;

/// The error lines of the plugin's log.
fn error_lines(scene: &Scene) -> Vec<Value> {
    let log = scene.node.read(LOG).unwrap_or_default();
    let lines = log.lines().map(|line| serde_json::from_str(line).unwrap());
    lines
        .filter(|line: &Value| line["level"] == "error")
        .collect()
}

/// Runs ADD and DEL; both succeed in time and log one error line each.
#[track_caller]
fn assert_logged(scene: &Scene, cause: &str) {
    let pod = scene.node.pod("p").unwrap();
    for (count, verb) in [(1, "ADD"), (2, "DEL")] {
        let outcome = scene.done(verb, &logging(native()), &pod);
        assert!(outcome.elapsed < MAX_DELAY, "{:?}", outcome.elapsed);
        assert_eq!(outcome.stderr, "");
        let errors = error_lines(scene);
        assert_eq!(errors.len(), count, "{errors:?}");
        let line = &errors[count - 1];
        assert_eq!(
            (&line["verb"], &line["container"]),
            (&verb.into(), &"p".into())
        );
        let error = line["error"].as_str().unwrap();
        assert!(
            error.contains("notify headcni-daemon") && error.contains(cause),
            "{error}"
        );
    }
}

#[test]
fn without_a_daemon_pods_start_and_each_call_logs_one_error_line() {
    let scene = Scene::used();
    assert_logged(&scene, "No such file");
    assert!(
        !scene.node.has("/run/headcni"),
        "the plugin creates nothing"
    );
}

#[test]
fn with_a_stale_socket_pods_start_and_each_call_logs_one_error_line() {
    let scene = Scene::used();
    drop(Server::start(&scene.socket()));
    assert!(scene.socket().exists());
    assert_logged(&scene, "Connection refused");
}

#[test]
fn with_a_full_backlog_pods_start_and_each_call_logs_one_error_line() {
    let scene = Scene::used();
    let _backlog = full_backlog(&scene);
    assert_logged(&scene, "within 200ms");
}

#[test]
fn with_a_stopped_daemon_pods_start_and_each_call_logs_one_error_line() {
    let scene = Scene::used();
    let server = Process::start(&scene.socket());
    server.stop();
    assert_logged(&scene, "within 200ms");
    server.resume();
    let pod = scene.node.pod("after").unwrap();
    scene.done("ADD", &native(), &pod);
    let seen = || {
        server
            .events()
            .contains(&"ADD after".to_owned())
            .then_some(())
    };
    eventually(SOON, "the next event", seen).unwrap();
}

/// A server that accepts no connection, and a client that fills its backlog.
fn full_backlog(scene: &Scene) -> (UnixListener, UnixStream) {
    std::fs::create_dir(scene.node.path("/run/headcni")).unwrap();
    let listener = UnixListener::bind(scene.socket()).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let client = UnixStream::connect(scene.socket()).unwrap();
    (listener, client)
}

#[test]
fn a_client_does_not_wait_longer_than_its_timeout_for_a_full_backlog() {
    let scene = Scene::new();
    let _backlog = full_backlog(&scene);
    let client = Client::new(scene.socket(), Duration::from_millis(200));
    let error = client.status().unwrap_err();
    assert!(
        matches!(
            error,
            ClientError::Http {
                source: HttpError::Timeout { .. },
                ..
            }
        ),
        "{error:?}"
    );
}

/// Posts an event and returns the status of the response.
fn post(path: &Path, number: usize) -> u16 {
    let event = Event {
        verb: "ADD".to_owned(),
        container: number.to_string(),
        ..Event::default()
    };
    let client = HttpClient::new(path).timeout(SOON);
    let body = || serde_json::to_vec(&event).unwrap();
    client.post_json(EVENTS_PATH, body).unwrap().status
}

#[test]
fn a_full_event_queue_refuses_events_and_lists_the_pods_again() {
    let scene = Scene::new();
    let server = Server::start_paused(&scene.socket());
    let statuses: Vec<u16> = (0..8).map(|number| post(&scene.socket(), number)).collect();
    assert_eq!(statuses, [204, 204, 204, 204, 503, 503, 503, 503]);
    eventually(SOON, "the pods are listed again", || {
        server.has_lost_events().then_some(())
    })
    .unwrap();
    server.await_metric("headcni_plugin_events_total{outcome=\"dropped\"} 4");
    // Queries are still answered.
    let client = Client::new(scene.socket(), SOON);
    assert_eq!(client.status().unwrap().node_name, "n1");
    server.resume();
    server.await_events(4);
}

#[test]
fn a_removed_socket_is_opened_again_and_the_pods_are_listed_again() {
    let scene = Scene::new();
    let server = Server::start(&scene.socket());
    scene.node.run(["rm", "-r", "/run/headcni"]).unwrap();
    eventually(SOON, "a new socket", || {
        scene.socket().exists().then_some(())
    })
    .unwrap();
    assert_eq!(post(&scene.socket(), 1), 204);
    server.await_events(1);
    assert!(server.has_lost_events());
}

fn raise_open_files_limit() {
    let limit = getrlimit(Resource::Nofile);
    let current = limit.maximum;
    setrlimit(Resource::Nofile, Rlimit { current, ..limit }).unwrap();
}

/// Connects and sends nothing; fails if the backlog is full.
fn silent(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

#[test]
fn thousands_of_silent_clients_delay_no_event_and_cost_little_memory() {
    raise_open_files_limit();
    let scene = Scene::used();
    let server = Process::start(&scene.socket());
    let before = server.peak_kib();
    let path = scene.socket();
    let started = Instant::now();
    let slowest = thread::scope(|scope| {
        let clients = scope.spawn(|| {
            let connect = |_| loop {
                match silent(&path) {
                    Ok(client) => break client,
                    Err(rustix::io::Errno::AGAIN) => thread::yield_now(),
                    Err(error) => panic!("{error}"),
                }
            };
            (0..CLIENTS).map(connect).collect::<Vec<_>>()
        });
        let mut slowest = Duration::ZERO;
        for number in 0..PODS {
            let pod = scene.node.pod(&format!("p{number}")).unwrap();
            for verb in ["ADD", "DEL"] {
                let outcome = call(verb, &native(), &pod).run(&scene.node, headcni());
                let outcome = outcome.unwrap();
                outcome.ok().unwrap();
                slowest = slowest.max(outcome.elapsed);
            }
        }
        let files = server.open_files();
        assert!(files < MAX_CONNECTIONS + 30, "{files} open files");
        drop(clients.join().unwrap());
        slowest
    });
    // With the clients gone, events arrive as always.
    assert_eq!(post(&path, 1), 204);
    server.await_events(1);
    let grown = server.peak_kib() - before;
    eprintln!(
        "{CLIENTS} silent clients beside {} calls: {} events after {:?}, slowest call \
         {slowest:?}, {grown} KiB more",
        2 * PODS,
        server.events().len(),
        started.elapsed(),
    );
    assert!(grown < 4096, "{grown} KiB more");
    assert!(slowest < MAX_DELAY, "{slowest:?}");
}
