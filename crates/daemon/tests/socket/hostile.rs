//! Clients that mean no good, or know no better.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use api::messages::{Ask, MAX_REQUEST_BYTES, Request};
use daemon::socket::PATIENCE;
use lab::{Netns, Running};
use rstest::rstest;
use serde_json::Value;

use crate::scene::{Client, SOCKET, Scene, native};
use crate::server::{SOON, Server};

/// Asks as somebody who is not root.
fn ask_as_nobody(scene: &Scene) -> lab::Output {
    let to = format!("UNIX-CONNECT:{SOCKET}");
    let mut command = scene.node.command("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    command.args(["socat", "-t", "10", "-", &to]);
    let running = Running::spawn(&mut command, &Request::ask_line(Ask::Status)).unwrap();
    running.wait(SOON).unwrap()
}

#[test]
fn who_is_not_root_cannot_even_connect() {
    let scene = Scene::new();
    let server = Server::start(&scene.socket());
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(scene.socket()), 0o600);
    assert_eq!(mode(scene.node.path("/run/headcni")), 0o755);
    let output = ask_as_nobody(&scene);
    assert!(output.stderr.contains("Permission denied"), "{output:?}");
    assert_eq!(server.metrics.refused_clients.get(), 0);
}

#[test]
fn who_is_not_root_gets_no_answer_even_if_the_socket_lets_it_in() {
    let scene = Scene::new();
    let server = Server::start(&scene.socket());
    fs::set_permissions(scene.socket(), Permissions::from_mode(0o666)).unwrap();
    let output = ask_as_nobody(&scene);
    assert_eq!(output.stdout, "", "{output:?}");
    assert!(!output.stderr.contains("Permission denied"), "{output:?}");
    server.await_metric("headcni_socket_refused_clients_total 1");
    // And root does.
    let mut client = Client::connect(&scene.socket());
    client.say(&Request::ask_line(Ask::Status));
    assert_eq!(client.hear()["answer"]["nodeName"], "n1");
}

#[test]
fn a_line_of_a_megabyte_is_refused_and_its_sender_sent_away() {
    let scene = Scene::new();
    let server = Server::start(&scene.socket());
    let mut client = Client::connect(&scene.socket());
    client.say(&vec![b'x'; 1 << 20]);
    let answer = client.hear();
    let limit = MAX_REQUEST_BYTES.to_string();
    assert!(answer["error"].to_string().contains(&limit), "{answer}");
    assert_eq!(client.hear_out(), b"");
    assert_eq!(server.metrics.refused_clients.get(), 1);
}

#[rstest]
#[case::http(b"GET / HTTP/1.1\r\n\r\n")]
#[case::zeros(&[0, 0, 0, b'\n'])]
#[case::an_empty_line(b"\n")]
#[case::deep(&[b"[".repeat(60_000).as_slice(), b"\n"].concat())]
fn garbage_is_refused_and_its_sender_sent_away(#[case] garbage: &[u8]) {
    let scene = Scene::new();
    let server = Server::start(&scene.socket());
    let mut client = Client::connect(&scene.socket());
    client.say(garbage);
    let answer: Value = client.hear();
    assert!(answer["error"].to_string().contains("JSON"), "{answer}");
    assert_eq!(client.hear_out(), b"");
    server.await_metric("headcni_socket_refused_clients_total 1");
    let pod = scene.node.pod("p").unwrap();
    scene.done("ADD", &native(), &pod);
    server.await_events(1);
}

#[test]
fn half_a_line_and_then_silence_is_no_event() {
    let scene = Scene::new();
    let server = Server::start(&scene.socket());
    let line = Request::event_line(&api::event::Event::default()).unwrap();
    let (half, rest) = line.split_at(line.len() / 2);
    // One that hangs up, ...
    Client::connect(&scene.socket()).say(half);
    // ... one that does not, ...
    let mut silent = Client::connect(&scene.socket());
    silent.say(half);
    let started = Instant::now();
    assert_eq!(silent.hear_out(), b"");
    let waited = started.elapsed();
    assert!((PATIENCE / 2..PATIENCE * 2).contains(&waited), "{waited:?}");
    assert_eq!(server.metrics.refused_clients.get(), 1);
    // ... and one that comes to its end.
    let mut slow = Client::connect(&scene.socket());
    slow.say(half);
    slow.say(rest);
    server.await_events(1);
}
