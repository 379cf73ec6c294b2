use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use daemon::admin::Limits;
use proptest::prelude::*;

use crate::scene::{Admin, PATIENCE, Response, closed, local};

const SHORT: Duration = Duration::from_millis(300);

fn impatient() -> Limits {
    Limits {
        header: SHORT,
        ..Limits::default()
    }
}

#[test]
fn the_limits_are_the_promised_ones() {
    let limits = Limits::default();
    assert_eq!(limits.header, Duration::from_secs(5));
    assert_eq!(limits.connections, 32);
}

#[test]
fn whoever_does_not_finish_a_request_is_cut_off() {
    let admin = Admin::with(local(false), impatient());
    for begin in ["", "GET /healthz HTTP/1.1\r\nHost: x\r\n"] {
        let started = Instant::now();
        let mut slow = admin.connect();
        slow.write_all(begin.as_bytes()).unwrap();
        let took = closed(&mut slow, started);
        assert!(took >= SHORT && took < Duration::from_secs(10), "{took:?}");
    }
}

#[test]
fn a_byte_from_time_to_time_buys_no_time() {
    let admin = Admin::with(local(false), impatient());
    let started = Instant::now();
    let mut slow = admin.connect();
    slow.write_all(b"GET /healthz HTTP/1.1\r\nX: ").unwrap();
    let mut dripping = slow.try_clone().unwrap();
    let drip = thread::spawn(move || {
        while dripping.write_all(b"x").is_ok() {
            thread::park_timeout(SHORT / 10);
        }
    });
    let took = closed(&mut slow, started);
    assert!(took < Duration::from_secs(10), "{took:?}");
    drip.join().unwrap();
}

#[test]
fn whoever_does_not_read_the_answer_is_cut_off() {
    let limits = Limits {
        connections: 1,
        connection: SHORT,
        ..Limits::default()
    };
    let admin = Admin::with(local(false), limits);
    // More than sockets hold for somebody who does not read.
    let errors = &admin.sources.metrics.errors;
    for number in 0..60_000 {
        let error_type = format!("{number}-{}", "x".repeat(100));
        errors
            .get_or_create(&node_core::metrics::ByError { error_type })
            .inc();
    }
    let mut lazy = admin.connect();
    lazy.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    // There is one place only, so this is answered when the other one has lost it.
    assert_eq!(admin.get("/healthz").status, 200);
}

#[test]
fn whoever_has_been_silent_for_longest_makes_room() {
    let limits = Limits {
        connections: 4,
        ..Limits::default()
    };
    let admin = Admin::with(local(false), limits);
    let mut idle: Vec<TcpStream> = (0..4).map(|_| admin.connect()).collect();
    let mut asking = admin.connect();
    asking.set_read_timeout(Some(PATIENCE)).unwrap();
    asking.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(Response::read(&mut asking).status, 200);
    idle[0].set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(
        idle[0].peek(&mut [0]).unwrap(),
        0,
        "the first was sent away"
    );
    for other in &mut idle[1..] {
        other.set_read_timeout(Some(PATIENCE)).unwrap();
        other.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").unwrap();
        assert_eq!(Response::read(other).status, 200, "and nobody else");
    }
}

#[test]
fn a_thousand_silent_clients_keep_nobody_from_an_answer() {
    let admin = Admin::new();
    let silent: Vec<TcpStream> = (0..1000).map(|_| admin.connect()).collect();
    for mut stream in &silent {
        // Some have been sent away by now.
        let _ = stream.write_all(b"GET /healthz HT");
    }
    assert_eq!(admin.get("/healthz").status, 200);
}

#[test]
fn a_request_that_is_too_large_is_refused() {
    let admin = Admin::new();
    let many = "X: y\r\n".repeat(100);
    let long = format!("X: {}\r\n", "y".repeat(64 << 10));
    for headers in [many, long] {
        let mut stream = admin.connect();
        // It may have closed before all of it was sent.
        let _ = stream.write_all(format!("GET /healthz HTTP/1.1\r\n{headers}\r\n").as_bytes());
        let mut answer = Vec::new();
        let _ = std::io::Read::read_to_end(&mut stream, &mut answer);
        let answer = String::from_utf8_lossy(&answer);
        assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    assert_eq!(admin.get("/healthz").status, 200);
}

#[test]
fn no_garbage_ends_the_server() {
    let admin = Admin::with(local(true), impatient());
    let requests = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..2000),
        "(GET|HEAD|POST|[A-Z]{0,9}) /[ -~]{0,80} HTTP/1\\.[0-9]\r\n([ -~]{0,60}\r\n){0,8}\r\n"
            .prop_map(String::into_bytes),
        "GET /(metrics|ready|healthz|debug/pprof/profile)\\?[ -~]{0,40} HTTP/1\\.1\r\n\
         (Accept|Content-Length|Transfer-Encoding|Connection|Expect): [ -~]{0,60}\r\n\r\n"
            .prop_map(String::into_bytes),
    ];
    let config = ProptestConfig::with_cases(200);
    let mut runner = proptest::test_runner::TestRunner::new(config);
    runner
        .run(&requests, |request| {
            let mut stream = admin.connect();
            let _ = stream.write_all(&request);
            let _ = stream.shutdown(Shutdown::Write);
            prop_assert_eq!(admin.get("/healthz").status, 200);
            Ok(())
        })
        .unwrap();
}
