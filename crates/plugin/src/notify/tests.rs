use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::thread;
use std::time::Instant;

use cni::{Env, NetConf, Verb};
use rstest::rstest;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

fn call(verb: Verb, extra: &Value, env: &[(&str, &str)]) -> Call {
    let mut conf = json!({ "cniVersion": "1.0.0", "name": "net", "type": "headcni" });
    let keys = conf.as_object_mut().unwrap();
    keys.extend(extra.as_object().unwrap().clone());
    Call {
        verb,
        conf: NetConf::parse(conf.to_string().as_bytes()).unwrap(),
        env: env.iter().copied().collect::<Env>(),
    }
}

#[rstest]
#[case(json!({ "daemon_socket": "/key/s" }), &[(VARIABLE, "/env/s")], "/key/s")]
#[case(json!({}), &[(VARIABLE, "/env/s")], "/env/s")]
#[case(json!({ "daemon_socket": null }), &[], "/run/headcni/daemon.sock")]
fn the_socket_is_set_by_key_then_variable_then_default(
    #[case] extra: Value,
    #[case] env: &[(&str, &str)],
    #[case] expected: &str,
) {
    let daemon = Daemon::of_call(&call(Verb::Add, &extra, env)).unwrap();
    assert_eq!(daemon.socket.to_str(), Some(expected));
}

#[rstest]
#[case(json!("run/s"), "absolute")]
#[case(json!(5), "daemon_socket")]
#[case(json!(format!("/{}", "x".repeat(108))), "107 bytes")]
fn an_invalid_socket_fails_add_but_not_del(#[case] value: Value, #[case] part: &str) {
    let extra = json!({ "daemon_socket": value });
    let error = Daemon::of_call(&call(Verb::Add, &extra, &[])).unwrap_err();
    assert_eq!(error.code, cni::code::INVALID_CONFIG);
    assert!(error.msg.contains(part), "{error}");
    let daemon = Daemon::of_call(&call(Verb::Del, &extra, &[])).unwrap();
    assert_eq!(daemon.socket.to_str(), Some(paths::DAEMON_SOCKET));
}

/// The result of posting an event to a server, and the request that it got.
fn notify(response: &'static [u8]) -> (Result<(), NotifyError>, String) {
    let dir = TempDir::new().unwrap();
    let socket = dir.path().join("s");
    let listener = UnixListener::bind(&socket).unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = vec![0; 10_000];
        let count = stream.read(&mut request).unwrap();
        request.truncate(count);
        stream.write_all(response).unwrap();
        // Until the client closes.
        let _ = stream.read(&mut [0]);
        String::from_utf8(request).unwrap()
    });
    let event = || Event {
        container: "c".to_owned(),
        ..Event::default()
    };
    let result = Daemon { socket }.notify(event);
    (result, server.join().unwrap())
}

#[test]
fn an_event_is_posted_as_json() {
    let (result, request) = notify(b"HTTP/1.1 204 No Content\r\n\r\n");
    result.unwrap();
    assert!(
        request.starts_with("POST /v1/events HTTP/1.1\r\n"),
        "{request}"
    );
    let (_, body) = request.split_once("\r\n\r\n").unwrap();
    let event: Event = serde_json::from_str(body).unwrap();
    assert_eq!(event.container, "c");
}

#[test]
fn a_daemon_that_refuses_is_an_error() {
    let (result, _) = notify(b"HTTP/1.1 503 x\r\nContent-Length: 0\r\n\r\n");
    assert!(
        matches!(result, Err(NotifyError::Refused(503))),
        "{result:?}"
    );
}

#[test]
fn a_daemon_that_hangs_is_an_error_after_the_timeout() {
    let started = Instant::now();
    let (result, _) = notify(b"");
    assert!(
        matches!(result, Err(NotifyError::Http(HttpError::Timeout { .. }))),
        "{result:?}"
    );
    assert!(started.elapsed() >= TIMEOUT);
}

#[test]
fn a_daemon_that_is_away_is_an_error() {
    let socket = PathBuf::from("/nonexistent/s");
    let result = Daemon { socket }.notify(|| panic!("an event for no one"));
    assert!(
        matches!(result, Err(NotifyError::Http(HttpError::Connect { .. }))),
        "{result:?}"
    );
}
