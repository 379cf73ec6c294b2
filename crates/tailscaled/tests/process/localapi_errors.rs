//! Errors that a healthy tailscaled does not produce, from a fake one.

use std::time::{Duration, Instant};

use rstest::rstest;
use tailscaled::localapi::{BusEvent, Error, LocalApi};
use tempfile::TempDir;
use tokio::net::UnixListener;

use crate::harness::FakeTailscaled;

#[rstest]
#[case::forbidden(
    "HTTP/1.1 403 Forbidden\r\nContent-Length: 13\r\n\r\naccess denied",
    "tailscaled denies access to GET status: access denied: run as root or as its operator"
)]
#[case::refused(
    "HTTP/1.1 500 Oops\r\nContent-Length: 14\r\n\r\n{\"Error\":\"no\"}",
    "tailscaled rejects GET status with status 500: no"
)]
#[case::no_json(
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "invalid response from tailscaled to GET status: check that its version is supported"
)]
#[case::silent("", "no response from tailscaled to GET status within 500ms")]
#[case::half(
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{}",
    "no response from tailscaled to GET status within 500ms"
)]
#[case::no_http(
    "SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "the connection to tailscaled failed during GET status"
)]
#[tokio::test]
async fn error_responses_are_classified(#[case] response: &'static str, #[case] expected: &str) {
    let fake = FakeTailscaled::new(response);
    let error = fake.api().status().await.unwrap_err();
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn a_missing_or_stale_socket_means_not_running() {
    let files = TempDir::new().unwrap();
    let socket = files.path().join("ts.sock");
    let error = LocalApi::new(&socket).status().await.unwrap_err();
    assert!(error.is_not_running(), "{error}");
    // A stale socket.
    drop(UnixListener::bind(&socket).unwrap());
    let error = LocalApi::new(&socket).status().await.unwrap_err();
    assert!(error.is_not_running(), "{error}");
}

#[tokio::test]
async fn bus_messages_are_split_across_chunks_and_invalid_ones_are_errors() {
    let fake = FakeTailscaled::new(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
         e\r\n{\"State\":5}\n{}\r\n6\r\n\n{\"Sta\r\n7\r\nte\":6}\n\r\n4\r\n???\n\r\n0\r\n\r\n",
    );
    let mut bus = fake.api().open_bus().await.unwrap();
    let state = |notify: tailscaled::localapi::Notify| notify.state.map(|state| state.to_string());
    let mut states = Vec::new();
    for _ in 0..3 {
        states.push(state(bus.recv().await.unwrap()));
    }
    assert_eq!(
        states,
        [
            Some("Starting".to_owned()),
            None,
            Some("Running".to_owned())
        ]
    );
    let error = bus.recv().await.unwrap_err();
    assert!(matches!(error, Error::InvalidResponse { .. }), "{error}");
    let error = bus.recv().await.unwrap_err();
    assert!(matches!(error, Error::BusClosed), "{error}");
}

#[tokio::test]
async fn a_bus_that_keeps_closing_is_reopened_with_a_backoff() {
    let fake = FakeTailscaled::new(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
         c\r\n{\"State\":6}\n\r\n0\r\n\r\n",
    );
    let mut bus = fake.api().watch_bus();
    let mut opened = Vec::new();
    let mut messages = 0;
    while opened.len() < 5 {
        match bus.recv().await {
            BusEvent::Connected => opened.push(Instant::now()),
            BusEvent::Notify(_) => messages += 1,
            BusEvent::Lost(error) => assert!(matches!(error, Error::BusClosed), "{error}"),
        }
    }
    assert_eq!(messages, 4);
    // Delays of 100, 200, 400 and 800 milliseconds.
    let all = opened[4] - opened[0];
    assert!(all >= Duration::from_millis(1500), "{all:?}");
}
