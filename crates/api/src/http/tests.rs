use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;

use proptest::prelude::*;
use rstest::rstest;
use tempfile::TempDir;

use super::*;

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(100);

/// Accepts connections, reads one request from each and writes `response`, which may be incomplete.
struct Server {
    dir: TempDir,
}

impl Server {
    fn new(respond: impl Fn(&str, &mut UnixStream) + Send + 'static) -> Self {
        let server = Self {
            dir: TempDir::new().unwrap(),
        };
        let listener = UnixListener::bind(server.socket()).unwrap();
        thread::spawn(move || {
            let mut open = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut request = String::new();
                while !request.ends_with("\r\n\r\n") {
                    assert!(reader.read_line(&mut request).unwrap() > 0);
                }
                let length = request.lines().find_map(|line| {
                    let length = line.strip_prefix("Content-Length: ")?;
                    Some(length.parse::<u64>().unwrap())
                });
                if let Some(length) = length {
                    reader.take(length).read_to_string(&mut request).unwrap();
                }
                respond(&request, &mut stream);
                open.push(stream);
            }
        });
        server
    }

    fn responding(response: &str) -> Self {
        let response = response.to_owned();
        Self::new(move |_, stream| {
            // The client closes as soon as it has seen enough.
            let _ = stream.write_all(response.as_bytes());
        })
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("s")
    }

    fn client(&self) -> HttpClient {
        HttpClient::new(self.socket()).timeout(LONG)
    }
}

#[rstest]
#[case::content_length("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, "hello")]
#[case::chunked(
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n",
    200,
    "hello"
)]
#[case::lower_case("HTTP/1.1 200 OK\r\ncontent-length:5\r\n\r\nhello", 200, "hello")]
#[case::both(
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 99\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    200,
    "hello"
)]
#[case::no_content("HTTP/1.1 204 No Content\r\n\r\n", 204, "")]
#[case::an_error(
    "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\nno",
    503,
    "no"
)]
fn a_response_is_read_whole(#[case] response: &str, #[case] status: u16, #[case] body: &str) {
    let response = Server::responding(response).client().get("/").unwrap();
    assert_eq!(response.status, status);
    assert_eq!(String::from_utf8(response.body).unwrap(), body);
}

#[test]
fn a_response_without_a_length_ends_with_the_connection() {
    let server = Server::new(|_, stream| {
        stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nhello").unwrap();
        stream.shutdown(std::net::Shutdown::Both).unwrap();
    });
    assert_eq!(server.client().get("/").unwrap().body, b"hello");
}

#[test]
fn a_request_has_host_path_and_body() {
    let server = Server::new(|request, stream| {
        let length = request.len();
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{request}"
        )
        .unwrap();
    });
    let client = server.client().host("local-tailscaled.sock");
    let get = String::from_utf8(client.get("/a?b=c").unwrap().body).unwrap();
    assert!(get.starts_with("GET /a?b=c HTTP/1.1\r\n"), "{get}");
    assert!(get.contains("\r\nHost: local-tailscaled.sock\r\n"), "{get}");
    let post = client.post_json("/v1/events", || b"{\"a\":1}".to_vec());
    let post = String::from_utf8(post.unwrap().body).unwrap();
    assert!(post.starts_with("POST /v1/events HTTP/1.1\r\n"), "{post}");
    assert!(post.ends_with("\r\n\r\n{\"a\":1}"), "{post}");
}

#[rstest]
#[case("SSH-2.0-x\r\n\r\n", "not an HTTP response")]
#[case(
    "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
    "invalid Content-Length"
)]
#[case(
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno\r\n",
    "invalid chunk size"
)]
#[case(
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n",
    "exceeds its size"
)]
#[case(
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
    "unknown Transfer-Encoding"
)]
fn a_malformed_response_is_an_error(#[case] response: &str, #[case] reason: &str) {
    let error = Server::responding(response).client().get("/").unwrap_err();
    assert!(matches!(error, HttpError::Malformed { .. }), "{error:?}");
    assert!(error.to_string().ends_with(reason), "{error}");
}

#[rstest]
#[case::length("HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n", 0)]
#[case::chunk(
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
    0
)]
#[case::unbounded("HTTP/1.1 200 OK\r\n\r\n", 9_000_000)]
#[case::head("HTTP/1.1 200 OK\r\nx: ", 9_000_000)]
fn a_response_that_is_too_large_is_not_read_to_its_end(#[case] start: &str, #[case] more: usize) {
    let server = Server::responding(&format!("{start}{}", "x".repeat(more)));
    let error = server.client().get("/").unwrap_err();
    assert!(matches!(error, HttpError::TooLarge { .. }), "{error:?}");
}

#[rstest]
#[case::silent("")]
#[case::half_a_head("HTTP/1.1 200 OK\r\nContent-Le")]
#[case::half_a_body("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{")]
#[case::half_a_chunk("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe")]
fn an_incomplete_response_times_out(#[case] response: &str) {
    let server = Server::responding(response);
    let started = Instant::now();
    let error = server.client().timeout(SHORT).get("/").unwrap_err();
    assert!(matches!(error, HttpError::Timeout { .. }), "{error:?}");
    assert!(started.elapsed() >= SHORT && started.elapsed() < LONG);
}

#[test]
fn a_server_that_sends_a_byte_at_a_time_does_not_extend_the_deadline() {
    let server = Server::new(|_, stream| {
        while stream.write_all(b"H").is_ok() {
            thread::sleep(SHORT / 10);
        }
    });
    let started = Instant::now();
    let error = server.client().timeout(SHORT).get("/").unwrap_err();
    assert!(!matches!(error, HttpError::Connect { .. }), "{error:?}");
    assert!(started.elapsed() < LONG);
}

#[test]
fn a_full_backlog_times_out() {
    let dir = TempDir::new().unwrap();
    let socket = dir.path().join("s");
    let listener = UnixListener::bind(&socket).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let _waiting = UnixStream::connect(&socket).unwrap();
    let started = Instant::now();
    let client = HttpClient::new(socket).timeout(SHORT);
    let error = client.get("/").unwrap_err();
    assert!(matches!(error, HttpError::Timeout { .. }), "{error:?}");
    // It waits first: the server may accept in time. The kernel counts in ticks.
    assert!((SHORT / 2..LONG).contains(&started.elapsed()));
}

#[test]
fn a_connection_closed_early_is_an_error() {
    let server = Server::new(|_, stream| {
        stream.shutdown(std::net::Shutdown::Both).unwrap();
    });
    let error = server.client().get("/").unwrap_err();
    assert!(matches!(error, HttpError::Io { .. }), "{error:?}");
}

#[test]
fn a_missing_socket_is_named_and_no_body_is_built() {
    let client = HttpClient::new("/nonexistent/s");
    let error = client.post_json("/", || panic!("a body for no one"));
    let error = error.unwrap_err();
    assert!(matches!(error, HttpError::Connect { .. }), "{error:?}");
    assert!(error.to_string().contains("/nonexistent/s"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn chunks_are_joined_however_they_are_cut(
        body in prop::collection::vec(any::<u8>(), 0..3000),
        chunk in 1_usize..700,
        piece in 1_usize..900,
    ) {
        let mut response = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        for chunk in body.chunks(chunk) {
            response.extend(format!("{:x}\r\n", chunk.len()).bytes());
            response.extend(chunk);
            response.extend(b"\r\n");
        }
        response.extend(b"0\r\n\r\n");
        let server = Server::new(move |_, stream| {
            for piece in response.chunks(piece) {
                stream.write_all(piece).unwrap();
            }
        });
        prop_assert_eq!(server.client().get("/").unwrap().body, body);
    }
}
