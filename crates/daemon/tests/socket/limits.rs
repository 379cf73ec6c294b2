//! Clients that are not allowed, slow, or send garbage.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use api::client::Client;
use api::event::Event;
use api::messages::MAX_EVENT_BYTES;
use daemon::socket::HEADER_TIMEOUT;
use lab::{Netns, Running};
use rstest::rstest;

use crate::scenario::{RawClient, SOCKET, Scene, native};
use crate::server::{SOON, Server};

const REQUEST: &[u8] = b"GET /v1/status HTTP/1.1\r\nHost: d\r\n\r\n";

/// Sends a request as a user who is not root.
fn get_as_nobody(scene: &Scene) -> lab::Output {
    let to = format!("UNIX-CONNECT:{SOCKET}");
    let mut command = scene.node.command("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    command.args(["socat", "-t", "10", "-", &to]);
    let running = Running::spawn(&mut command, REQUEST).unwrap();
    running.wait(SOON).unwrap()
}

#[test]
fn the_socket_has_mode_0600() {
    let scene = Scene::new();
    let _server = Server::start(&scene.socket());
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(scene.socket()), 0o600);
    assert_eq!(mode(scene.node.path("/run/headcni")), 0o755);
    let output = get_as_nobody(&scene);
    assert!(output.stderr.contains("Permission denied"), "{output:?}");
}

#[test]
fn peer_credentials_are_checked_even_if_the_mode_is_wrong() {
    let scene = Scene::new();
    let _server = Server::start(&scene.socket());
    fs::set_permissions(scene.socket(), Permissions::from_mode(0o666)).unwrap();
    let output = get_as_nobody(&scene);
    assert_eq!(output.stdout, "", "{output:?}");
    assert!(!output.stderr.contains("Permission denied"), "{output:?}");
    let client = Client::new(scene.socket(), SOON);
    assert_eq!(client.status().unwrap().node_name, "n1");
}

fn post(body_bytes: usize) -> Vec<u8> {
    let event = Event::default();
    let json = serde_json::to_string(&event).unwrap();
    let body = json + &" ".repeat(body_bytes);
    let length = body.len();
    format!("POST /v1/events HTTP/1.1\r\nHost: d\r\nContent-Length: {length}\r\n\r\n{body}")
        .into_bytes()
}

#[rstest]
#[case::too_large(post(MAX_EVENT_BYTES), "413")]
#[case::a_megabyte(post(1 << 20), "400")]
#[case::no_json(b"POST /v1/events HTTP/1.1\r\nHost: d\r\nContent-Length: 2\r\n\r\n{x".to_vec(), "400")]
#[case::wrong_method(b"POST /v1/status HTTP/1.1\r\nHost: d\r\nContent-Length: 0\r\n\r\n".to_vec(), "405")]
#[case::unknown_path(b"GET /v1/beer HTTP/1.1\r\nHost: d\r\n\r\n".to_vec(), "404")]
#[case::no_http(b"{\"version\":1,\"ask\":\"status\"}\n\r\n\r\n".to_vec(), "400")]
#[case::zeros(vec![0; 100], "400")]
fn a_bad_request_is_refused_and_the_connection_closed(
    #[case] request: Vec<u8>,
    #[case] status: &str,
) {
    let scene = Scene::new();
    let server = Server::start(&scene.socket());
    let mut client = RawClient::connect(&scene.socket());
    client.send(&request);
    let response = client.read_to_end();
    let expected = format!("HTTP/1.1 {status} ");
    assert!(response.starts_with(&expected), "{response}");
    let pod = scene.node.pod("p").unwrap();
    scene.done("ADD", &native(), &pod);
    server.await_events(1);
}

#[test]
fn an_unknown_path_gets_the_list_of_known_ones() {
    let scene = Scene::new();
    let _server = Server::start(&scene.socket());
    let mut client = RawClient::connect(&scene.socket());
    client.send(b"GET /v1/beer HTTP/1.1\r\nHost: d\r\n\r\n");
    let response = client.read_to_end();
    assert!(response.contains("podcidr"), "{response}");
}

#[test]
fn an_incomplete_request_is_no_event_and_times_out() {
    let scene = Scene::new();
    let server = Server::start(&scene.socket());
    let request = post(0);
    let (half, rest) = request.split_at(request.len() / 4);
    // One client closes its connection, the next keeps it, the last one finishes its request.
    RawClient::connect(&scene.socket()).send(half);
    let mut silent = RawClient::connect(&scene.socket());
    silent.send(half);
    let started = Instant::now();
    assert_eq!(silent.read_to_end(), "");
    let waited = started.elapsed();
    let expected = HEADER_TIMEOUT / 2..HEADER_TIMEOUT * 2;
    assert!(expected.contains(&waited), "{waited:?}");
    assert_eq!(server.events().len(), 0);
    let mut slow = RawClient::connect(&scene.socket());
    slow.send(half);
    slow.send(rest);
    server.await_events(1);
}
