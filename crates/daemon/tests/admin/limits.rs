use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use daemon::admin::LIMITS;
use daemon::connections::ConnectionLimits;
use proptest::prelude::*;

use crate::server::{Admin, Response, TIMEOUT, closed, local};

const SHORT: Duration = Duration::from_millis(300);

fn short_header_timeout() -> ConnectionLimits {
    ConnectionLimits {
        header: SHORT,
        ..LIMITS
    }
}

#[test]
fn the_limits_are_the_documented_ones() {
    assert_eq!(LIMITS.header, Duration::from_secs(5));
    assert_eq!(LIMITS.connections, 32);
    assert_eq!(LIMITS.request_bytes, 16 << 10);
}

#[test]
fn an_incomplete_request_times_out() {
    let admin = Admin::with(local(false), short_header_timeout());
    for start in ["", "GET /healthz HTTP/1.1\r\nHost: x\r\n"] {
        let started = Instant::now();
        let mut slow = admin.connect();
        slow.write_all(start.as_bytes()).unwrap();
        let took = closed(&mut slow, started);
        assert!(took >= SHORT && took < Duration::from_secs(10), "{took:?}");
    }
}

#[test]
fn single_bytes_do_not_extend_the_timeout() {
    let admin = Admin::with(local(false), short_header_timeout());
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
fn a_response_that_is_not_read_times_out() {
    let limits = ConnectionLimits {
        connections: 1,
        response: SHORT,
        ..LIMITS
    };
    let admin = Admin::with(local(false), limits);
    // More than socket buffers hold.
    let errors = &admin.context.metrics.errors;
    for number in 0..60_000 {
        let error_type = format!("{number}-{}", "x".repeat(100));
        errors
            .get_or_create(&node_core::metrics::ByError { error_type })
            .inc();
    }
    let mut slow = admin.connect();
    slow.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    // There is one connection only, so this is answered when the other one has timed out.
    assert_eq!(admin.get("/healthz").status, 200);
}

#[test]
fn the_oldest_connection_without_a_request_makes_room() {
    let limits = ConnectionLimits {
        connections: 4,
        ..LIMITS
    };
    let admin = Admin::with(local(false), limits);
    let mut idle: Vec<TcpStream> = (0..4).map(|_| admin.connect()).collect();
    let mut asking = admin.connect();
    asking.set_read_timeout(Some(TIMEOUT)).unwrap();
    asking.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(Response::read(&mut asking).status, 200);
    idle[0].set_read_timeout(Some(TIMEOUT)).unwrap();
    assert_eq!(
        idle[0].peek(&mut [0]).unwrap(),
        0,
        "the first one is closed"
    );
    for other in &mut idle[1..] {
        other.set_read_timeout(Some(TIMEOUT)).unwrap();
        other.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").unwrap();
        assert_eq!(Response::read(other).status, 200, "and no other");
    }
}

#[test]
fn a_thousand_silent_clients_do_not_block_a_probe() {
    let admin = Admin::new();
    let silent: Vec<TcpStream> = (0..1000).map(|_| admin.connect()).collect();
    for mut stream in &silent {
        // Some are closed by now.
        let _ = stream.write_all(b"GET /healthz HT");
    }
    assert_eq!(admin.get("/healthz").status, 200);
}

#[test]
fn a_request_that_is_too_large_is_refused() {
    let admin = Admin::new();
    let many = "X: y\r\n".repeat(200);
    let long = format!("X: {}\r\n", "y".repeat(64 << 10));
    for headers in [many, long] {
        let mut stream = admin.connect();
        // The server may have closed the connection already.
        let _ = stream.write_all(format!("GET /healthz HTTP/1.1\r\n{headers}\r\n").as_bytes());
        let mut answer = Vec::new();
        let _ = std::io::Read::read_to_end(&mut stream, &mut answer);
        let answer = String::from_utf8_lossy(&answer);
        assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    assert_eq!(admin.get("/healthz").status, 200);
}

#[test]
fn no_garbage_stops_the_server() {
    let admin = Admin::with(local(true), short_header_timeout());
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
