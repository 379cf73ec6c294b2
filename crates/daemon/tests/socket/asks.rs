//! People who ask.

use std::time::Instant;

use api::client::{Client, ClientError};
use api::messages::{Ask, Request};
use daemon::socket::PATIENCE;
use serde_json::json;

use crate::scene::{Client as Raw, Scene};
use crate::server::{SOON, Server};

#[test]
fn every_question_is_answered_on_one_connection() {
    let scene = Scene::new();
    let server = Server::start(&scene.socket());
    let mut client = Client::connect(&scene.socket(), SOON).unwrap();
    assert_eq!(client.status().unwrap().node_name, "n1");
    assert_eq!(client.pods().unwrap().len(), 5000);
    assert_eq!(client.leases().unwrap(), []);
    assert_eq!(client.pod_cidr().unwrap().local, []);
    assert_eq!(client.conditions().unwrap(), []);
    let error = client.interfaces().unwrap_err().to_string();
    assert!(error.ends_with("the kernel is out"), "{error}");
    assert_eq!(client.status().unwrap().node_name, "n1");
    server.await_metric("headcni_socket_request_duration_seconds_count{request=\"status\"} 2");
    server.await_metric("headcni_socket_request_duration_seconds_count{request=\"pods\"} 1");
    assert_eq!(server.metrics.refused_clients.get(), 0);
}

#[test]
fn a_question_that_nobody_answers_is_an_error() {
    let scene = Scene::new();
    let _server = Server::start(&scene.socket());
    let mut client = Client::connect(&scene.socket(), SOON).unwrap();
    let error = client.routes().unwrap_err();
    assert!(matches!(error, ClientError::Refused { .. }), "{error:?}");
    assert_eq!(client.status().unwrap().node_name, "n1");
}

#[test]
fn questions_in_one_breath_are_answered_in_order() {
    let scene = Scene::new();
    let _server = Server::start(&scene.socket());
    let mut client = Raw::connect(&scene.socket());
    let asks = [Ask::Leases, Ask::Status, Ask::Leases].map(Request::ask_line);
    client.say(&asks.concat());
    assert_eq!(client.hear(), json!({ "version": 1, "answer": [] }));
    assert_eq!(client.hear()["answer"]["nodeName"], "n1");
    assert_eq!(client.hear(), json!({ "version": 1, "answer": [] }));
}

#[test]
fn a_newer_version_is_refused_with_both_named_and_may_go_on_in_ours() {
    let scene = Scene::new();
    let _server = Server::start(&scene.socket());
    let mut client = Raw::connect(&scene.socket());
    client.say(b"{\"version\":99,\"ask\":{\"deep\":true}}\n");
    let answer = client.hear();
    assert_eq!(answer["version"], 1);
    let error = answer["error"].as_str().unwrap();
    assert!(error.contains("version 99"), "{error}");
    assert!(error.contains("up to 1"), "{error}");
    client.say(b"{\"version\":1,\"ask\":\"beer\"}\n");
    let error = client.hear()["error"].to_string();
    assert!(
        error.contains("beer") && error.contains("podcidr"),
        "{error}"
    );
    client.say(&Request::ask_line(Ask::Leases));
    assert_eq!(client.hear()["answer"], json!([]));
}

#[test]
fn who_does_not_take_an_answer_is_sent_away_and_holds_nobody_up() {
    let scene = Scene::new();
    let server = Server::start(&scene.socket());
    let mut deaf = Raw::connect(&scene.socket());
    deaf.say(&Request::ask_line(Ask::Pods));
    let mut client = Client::connect(&scene.socket(), SOON).unwrap();
    let started = Instant::now();
    client.status().unwrap();
    assert!(started.elapsed() < PATIENCE);
    drop(client);
    server.await_metric("headcni_socket_refused_clients_total 1");
    let heard = deaf.hear_out();
    assert!(!heard.ends_with(b"\n"), "it was not all");
}
