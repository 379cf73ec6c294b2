use std::fs;
use std::io::Read;
use std::os::unix::net::UnixListener;

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

fn event() -> Event {
    Event {
        container: "c".to_owned(),
        ..Event::default()
    }
}

#[test]
fn the_socket_is_by_key_then_variable_then_default() {
    let of = |extra, env: &[_]| {
        let daemon = Daemon::of_call(&call(Verb::Add, &extra, env)).unwrap();
        (daemon.socket.display().to_string(), daemon.presence)
    };
    let env = [(VARIABLE, "/env/s")];
    let key = json!({ "daemon_socket": "/key/s" });
    assert_eq!(of(key, &env), ("/key/s".to_owned(), Presence::Expected));
    assert_eq!(
        of(json!({}), &env),
        ("/env/s".to_owned(), Presence::Expected)
    );
    assert_eq!(
        of(json!({ "daemon_socket": null }), &[]),
        ("/run/headcni/daemon.sock".to_owned(), Presence::Unsure)
    );
}

#[rstest]
#[case(json!("run/s"), "absolute")]
#[case(json!(5), "daemon_socket")]
#[case(json!(format!("/{}", "x".repeat(108))), "107 bytes")]
fn a_socket_that_cannot_be_is_refused_but_stops_no_clean_up(
    #[case] value: Value,
    #[case] part: &str,
) {
    let extra = json!({ "daemon_socket": value });
    let error = Daemon::of_call(&call(Verb::Add, &extra, &[])).unwrap_err();
    assert_eq!(error.code, cni::code::INVALID_CONFIG);
    assert!(error.msg.contains(part), "{error}");
    let lenient = Daemon::of_call(&call(Verb::Del, &extra, &[])).unwrap();
    assert_eq!(lenient.presence, Presence::Unsure);
}

#[test]
fn an_event_goes_to_whoever_listens() {
    let dir = TempDir::new().unwrap();
    let daemon = Daemon {
        socket: dir.path().join("s"),
        presence: Presence::Unsure,
    };
    let listener = UnixListener::bind(&daemon.socket).unwrap();
    daemon.tell(event);
    let (mut stream, _) = listener.accept().unwrap();
    let mut line = vec![0; Request::event_line(&event()).unwrap().len()];
    stream.read_exact(&mut line).unwrap();
    assert_eq!(
        Request::parse(&line).unwrap(),
        Request::Event(Box::new(event()))
    );
    assert!(!dir.path().join(SPOOL_NAME).exists());
}

#[test]
fn an_event_that_nobody_listens_to_goes_to_the_spool() {
    let dir = TempDir::new().unwrap();
    let daemon = Daemon {
        socket: dir.path().join("s"),
        presence: Presence::Unsure,
    };
    drop(UnixListener::bind(&daemon.socket).unwrap());
    daemon.tell(event);
    daemon.tell(event);
    let spooled = fs::read(dir.path().join(SPOOL_NAME)).unwrap();
    let line = Request::event_line(&event()).unwrap();
    assert_eq!(spooled, [line.clone(), line].concat());
}

#[test]
fn where_no_daemon_is_nothing_is_made_unless_one_is_expected() {
    let dir = TempDir::new().unwrap();
    for socket in ["s", "none/s"] {
        let unsure = Daemon {
            socket: dir.path().join(socket),
            presence: Presence::Unsure,
        };
        unsure.tell(event);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
    let socket = dir.path().join("none/s");
    let expected = Daemon {
        socket,
        presence: Presence::Expected,
    };
    expected.tell(event);
    assert!(dir.path().join("none").join(SPOOL_NAME).exists());
}
