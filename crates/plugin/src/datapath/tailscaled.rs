//! The state of tailscaled, for a strict STATUS: asked over its LocalAPI.

use std::path::Path;
use std::time::Duration;

use api::http::{HttpClient, HttpError};
use cni::Error;
use cni::code::LIMITED_CONNECTIVITY;
use serde::Deserialize;

/// `ipnstate.Status` of tailscaled, as far as it is needed.
#[derive(Debug, Deserialize)]
struct Status {
    #[serde(rename = "BackendState")]
    backend: String,
}

#[derive(Debug, thiserror::Error)]
enum TailscaledError {
    #[error("query the status of tailscaled")]
    Http(#[from] HttpError),
    #[error("tailscaled at {socket} answered {answer:?} instead of its status")]
    Unexpected { socket: String, answer: String },
}

/// Fails unless the node is connected to its tailnet.
pub(super) fn check_running(socket: &Path, timeout: Duration) -> Result<(), Error> {
    match query(socket, timeout) {
        Ok(status) if status.backend == "Running" => Ok(()),
        Ok(status) => Err(Error::new(
            LIMITED_CONNECTIVITY,
            format!(
                "tailscaled at {} is in state {:?}, so that pods reach only this node: {}",
                socket.display(),
                truncated(&status.backend),
                remedy(&status.backend)
            ),
        )),
        Err(error) => {
            let error = Error::caused(LIMITED_CONNECTIVITY, &error);
            let msg = format!(
                "{}: pods reach only this node; start tailscaled, or set tailscale_socket to \
                 its socket",
                error.msg
            );
            Err(Error { msg, ..error })
        }
    }
}

fn query(socket: &Path, timeout: Duration) -> Result<Status, TailscaledError> {
    let client = HttpClient::new(socket)
        .host("local-tailscaled.sock")
        .timeout(timeout);
    let response = client.get("/localapi/v0/status?peers=false")?;
    let body = String::from_utf8_lossy(&response.body);
    let unexpected = |answer: &str| TailscaledError::Unexpected {
        socket: socket.display().to_string(),
        answer: truncated(answer),
    };
    if response.status != 200 {
        return Err(unexpected(&format!("{} {}", response.status, body.trim())));
    }
    serde_json::from_slice(&response.body).map_err(|_| unexpected(body.trim()))
}

/// What to do about a state of `ipn.State` in tailscale's `ipn/backend.go`.
fn remedy(backend: &str) -> &'static str {
    match backend {
        "NeedsLogin" => "log this node in, with `tailscale up --login-server` and an auth key",
        "NeedsMachineAuth" => "approve this node in Headscale",
        "Stopped" => "start it with `tailscale up`",
        "InUseOtherUser" => "end the session of the other user",
        _ => "wait until it has started, or look at its log",
    }
}

fn truncated(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;
    use std::thread;

    use rstest::rstest;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    /// A server that sends `answer` to each request.
    struct FakeTailscaled {
        directory: tempfile::TempDir,
    }

    impl FakeTailscaled {
        fn answering(status: &str, body: &str) -> Self {
            let directory = tempfile::tempdir().unwrap();
            let fake = Self { directory };
            let listener = UnixListener::bind(fake.socket()).unwrap();
            let length = body.len();
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}");
            thread::spawn(move || {
                for stream in listener.incoming() {
                    let mut stream = stream.unwrap();
                    let mut reader = BufReader::new(stream.try_clone().unwrap());
                    let mut request = String::new();
                    while !request.ends_with("\r\n\r\n") {
                        assert!(reader.read_line(&mut request).unwrap() > 0);
                    }
                    assert!(request.starts_with("GET /localapi/v0/status"));
                    assert!(request.contains("\r\nHost: local-tailscaled.sock\r\n"));
                    stream.write_all(answer.as_bytes()).unwrap();
                }
            });
            fake
        }

        fn socket(&self) -> PathBuf {
            self.directory.path().join("tailscaled.sock")
        }
    }

    #[test]
    fn a_running_tailscaled_is_accepted() {
        let body = r#"{"BackendState":"Running","Peer":null}"#;
        let fake = FakeTailscaled::answering("200 OK", body);
        check_running(&fake.socket(), LONG).unwrap();
    }

    #[rstest]
    #[case("NeedsLogin", "tailscale up")]
    #[case("NeedsMachineAuth", "Headscale")]
    #[case("Stopped", "tailscale up")]
    #[case("Starting", "wait")]
    #[case("NoState", "wait")]
    fn any_other_state_is_limited_connectivity_with_a_remedy(
        #[case] backend: &str,
        #[case] remedy: &str,
    ) {
        let body = format!(r#"{{"BackendState":"{backend}"}}"#);
        let fake = FakeTailscaled::answering("200 OK", &body);
        let error = check_running(&fake.socket(), LONG).unwrap_err();
        assert_eq!(error.code, 51);
        assert!(
            error.msg.contains(backend) && error.msg.contains(remedy),
            "{error}"
        );
    }

    #[rstest]
    #[case::refused("403 Forbidden", "no!", "403 no!")]
    #[case::no_json("200 OK", "no!", "no!")]
    #[case::no_state("200 OK", "{}", "{}")]
    fn any_other_answer_is_an_error(#[case] status: &str, #[case] body: &str, #[case] part: &str) {
        let fake = FakeTailscaled::answering(status, body);
        let error = check_running(&fake.socket(), LONG).unwrap_err();
        assert_eq!(error.code, 51);
        assert!(error.msg.contains(part), "{error}");
        assert!(error.msg.contains("tailscaled.sock"), "{error}");
    }

    #[test]
    fn a_missing_socket_is_an_error_that_names_the_key() {
        let error = check_running(Path::new("/nonexistent/ts.sock"), LONG).unwrap_err();
        assert_eq!(error.code, 51);
        for part in ["/nonexistent/ts.sock", "tailscale_socket", "No such file"] {
            assert!(error.msg.contains(part), "{error}");
        }
    }

    #[test]
    fn a_tailscaled_that_accepts_nothing_is_a_timeout() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("tailscaled.sock");
        let _never_accepts = UnixListener::bind(&socket).unwrap();
        let error = check_running(&socket, Duration::from_millis(50)).unwrap_err();
        assert!(error.msg.contains("no response"), "{error}");
    }
}
