//! What a tailscaled does not do when it is well: a fake one does it.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rstest::rstest;
use tailscaled::localapi::{Error, Event, LocalApi};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

/// Gives the same answer to everybody.
struct Fake {
    _files: TempDir,
    socket: PathBuf,
}

impl Fake {
    fn new(answer: &'static str) -> Self {
        let files = TempDir::new().unwrap();
        let socket = files.path().join("ts.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await?;
                tokio::spawn(async move {
                    let mut asked = [0; 4096];
                    let length = stream.read(&mut asked).await?;
                    let asked = String::from_utf8_lossy(&asked[..length]).to_lowercase();
                    assert!(asked.contains("host: local-tailscaled.sock"), "{asked}");
                    stream.write_all(answer.as_bytes()).await?;
                    // The other side decides when it has had enough.
                    stream.read(&mut [0]).await
                });
            }
            #[expect(unreachable_code, reason = "it gives the block its type")]
            io::Result::Ok(())
        });
        Self {
            _files: files,
            socket,
        }
    }

    fn api(&self) -> LocalApi {
        LocalApi::new(&self.socket).within(Duration::from_millis(500))
    }
}

#[rstest]
#[case::forbidden(
    "HTTP/1.1 403 Forbidden\r\nContent-Length: 13\r\n\r\naccess denied",
    "tailscaled denies GET status: access denied: run as root, or as its operator"
)]
#[case::refused(
    "HTTP/1.1 500 Oops\r\nContent-Length: 14\r\n\r\n{\"Error\":\"no\"}",
    "tailscaled refuses GET status (500): no"
)]
#[case::no_json(
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "understand the answer of tailscaled to GET status: see that its version is supported"
)]
#[case::silent("", "tailscaled has not answered GET status within 500ms")]
#[case::half(
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{}",
    "tailscaled has not answered GET status within 500ms"
)]
#[case::no_http("SSH-2.0-OpenSSH_9.2\r\n\r\n", "talk to tailscaled: GET status")]
#[tokio::test]
async fn faults_are_named(#[case] answer: &'static str, #[case] expected: &str) {
    let fake = Fake::new(answer);
    let error = fake.api().status().await.unwrap_err();
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn where_nobody_listens_it_says_so() {
    let files = TempDir::new().unwrap();
    let socket = files.path().join("ts.sock");
    let error = LocalApi::new(&socket).status().await.unwrap_err();
    assert!(error.is_absence(), "{error}");
    // What a killed one leaves.
    drop(UnixListener::bind(&socket).unwrap());
    let error = LocalApi::new(&socket).status().await.unwrap_err();
    assert!(error.is_absence(), "{error}");
}

#[tokio::test]
async fn a_bus_may_have_anything_in_it() {
    let fake = Fake::new(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
         e\r\n{\"State\":5}\n{}\r\n6\r\n\n{\"Sta\r\n7\r\nte\":6}\n\r\n4\r\n???\n\r\n0\r\n\r\n",
    );
    let mut bus = fake.api().watch().await.unwrap();
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
    assert!(matches!(error, Error::Strange { .. }), "{error}");
    let error = bus.recv().await.unwrap_err();
    assert!(matches!(error, Error::Ended), "{error}");
}

#[tokio::test]
async fn a_bus_that_closes_after_its_first_message_is_opened_less_and_less_often() {
    let fake = Fake::new(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
         c\r\n{\"State\":6}\n\r\n0\r\n\r\n",
    );
    let mut bus = fake.api().watch_always();
    let mut opened = Vec::new();
    let mut messages = 0;
    while opened.len() < 5 {
        match bus.recv().await {
            Event::Connected => opened.push(Instant::now()),
            Event::Notify(_) => messages += 1,
            Event::Lost(error) => assert!(matches!(error, Error::Ended), "{error}"),
        }
    }
    assert_eq!(messages, 4);
    // Waits of 100, 200, 400 and 800 milliseconds.
    let all = opened[4] - opened[0];
    assert!(all >= Duration::from_millis(1500), "{all:?}");
}
