//! Responses that no supported Headscale sends: of old versions, of proxies, too large or too slow.

use std::time::Duration;

use headscale::{Client, ClientSetupError, ConnectError, ErrorKind, Generation, Secret};
use jiff::SignedDuration;
use rstest::rstest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::harness::{FakeServer, KEY, response};

#[tokio::test]
async fn an_old_server_is_an_error_with_a_remedy() {
    let fake = FakeServer::start(|request| {
        if !request.contains("openapiv2.json") {
            return response("404 Not Found", "", "");
        }
        let paths = r#"{"/api/v1/routes":{},"/api/v1/node":{}}"#;
        let info = r#"{"title":"headscale/v1/headscale.proto"}"#;
        response(
            "200 OK",
            "",
            &format!(r#"{{"info":{info},"paths":{paths}}}"#),
        )
    })
    .await;
    let error = fake.client().version().await.unwrap_err();
    let version = "0.25 or older".to_owned();
    assert_eq!(error.kind(), &ErrorKind::TooOld { version });
    assert!(
        error.to_string().ends_with("upgrade it to 0.26 or newer"),
        "{error}"
    );
}

#[tokio::test]
async fn a_newer_server_is_accepted() {
    let fake = FakeServer::start(|_| response("200 OK", "", r#"{"version":"v0.31.0"}"#)).await;
    assert_eq!(fake.client().generation().await.unwrap(), Generation::Newer);
}

#[rstest]
#[case("404 Not Found", "<html><title>404 nginx</title></html>", "404 nginx")]
#[case("200 OK", "<!DOCTYPE html><p>Welcome!", "Welcome!")]
#[case("200 OK", r#"{"major":"1","gitVersion":"v1.37.0"}"#, "gitVersion")]
#[tokio::test]
async fn a_server_that_is_not_headscale_is_detected(
    #[case] status: &'static str,
    #[case] body: &'static str,
    #[case] expected: &str,
) {
    let fake = FakeServer::start(move |_| response(status, "", body)).await;
    let error = fake.client().version().await.unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::NotHeadscale { .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains(expected), "{error}");
}

#[rstest]
#[case("502 Bad Gateway", true)]
#[case("503 Service Unavailable", true)]
#[case("403 Forbidden", false)]
#[tokio::test]
async fn the_error_page_of_a_proxy_is_shortened(
    #[case] status: &'static str,
    #[case] is_retryable: bool,
) {
    let page = format!("<html><title>{status}</title>{}</html>", "x".repeat(10_000));
    let fake = FakeServer::start(move |_| response(status, "", &page)).await;
    let error = fake.client().nodes().await.unwrap_err();
    assert_eq!(error.is_retryable(), is_retryable);
    let text = error.to_string();
    assert!(
        text.contains(&format!("web page: {status}")) && text.len() < 300,
        "{text}"
    );
}

#[tokio::test]
async fn a_redirect_is_reported_and_not_followed() {
    let other = FakeServer::start(|_| response("200 OK", "", r#"{"users":[]}"#)).await;
    let to = format!("Location: http://{}/sub/api/v1/user\r\n", other.address());
    let fake = FakeServer::start(move |_| response("301 Moved Permanently", &to, "")).await;
    let error = fake.client().users().await.unwrap_err();
    let to = format!("http://{}/sub", other.address());
    assert_eq!(error.kind(), &ErrorKind::Redirected { to });
    assert_eq!(other.connections(), 0);
}

#[rstest]
#[case("400 Bad Request")]
// A captive portal answers every request.
#[case("200 OK")]
#[tokio::test]
async fn a_key_repeated_by_a_proxy_is_redacted(#[case] status: &'static str) {
    let fake = FakeServer::start(move |request| response(status, "", request)).await;
    let error = fake.client().users().await.unwrap_err();
    let shown = format!("{error} {error:?} {:?}", fake.options());
    assert!(shown.contains("Bearer") && !shown.contains(KEY), "{shown}");
}

#[tokio::test]
async fn a_response_that_is_too_large_is_an_error() {
    let fake = FakeServer::serve(|mut stream| async move {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let chunk = format!("100000\r\n{}\r\n", " ".repeat(0x0010_0000));
        let _ = stream.read(&mut [0; 1024]).await;
        let _ = stream.write_all(head.as_bytes()).await;
        while stream.write_all(chunk.as_bytes()).await.is_ok() {}
    })
    .await;
    let error = fake.client().nodes().await.unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::TooLarge { .. }),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_response_that_is_too_slow_is_a_timeout() {
    let fake = FakeServer::serve(|mut stream| async move {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n";
        let _ = stream.read(&mut [0; 1024]).await;
        let _ = stream.write_all(head.as_bytes()).await;
        while stream.write_all(b" ").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let mut options = fake.options();
    options.timeout = Duration::from_millis(200);
    let error = Client::new(&options).unwrap().nodes().await.unwrap_err();
    let cause = ConnectError::Timeout(options.timeout);
    let detail = String::new();
    assert_eq!(error.kind(), &ErrorKind::Unreachable { cause, detail });
}

#[rstest]
#[case(r#"{"nodes":[{"id":"one"}]}"#, "unexpected JSON, line 1 column ")]
#[case(r#"{"nodes":["#, "invalid JSON, line 1 column ")]
#[case("", "invalid response")]
#[case("pong", "pong")]
#[tokio::test]
async fn an_invalid_response_is_described(#[case] body: &'static str, #[case] expected: &str) {
    let fake = FakeServer::start(move |_| response("200 OK", "", body)).await;
    let error = fake.client().nodes().await.unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Malformed { .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains(expected), "{error}");
}

#[tokio::test]
async fn a_connection_is_reused() {
    let fake = FakeServer::start(|_| response("200 OK", "", r#"{"users":[]}"#)).await;
    let client = fake.client();
    for _ in 0..5 {
        client.users().await.unwrap();
    }
    assert_eq!(fake.connections(), 1);
}

#[tokio::test]
async fn clock_skew_is_measured() {
    let date = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    let fake = FakeServer::start(move |_| response("200 OK", date, r#"{"users":[]}"#)).await;
    let client = fake.client();
    assert_eq!(client.clock(), None);
    client.users().await.unwrap();
    // The server is in the past, so this node is ahead of it.
    assert!(client.clock().unwrap().local_ahead() > SignedDuration::from_hours(24 * 365 * 30));
}

#[tokio::test]
async fn a_path_in_the_url_is_a_prefix() {
    let fake = FakeServer::start(|request| {
        let is_there = request.starts_with("GET /head/scale/api/v1/user HTTP/1.1");
        let status = if is_there { "200 OK" } else { "404 Not Found" };
        response(status, "", "{}")
    })
    .await;
    let mut options = fake.options();
    options.url.push_str("/head/scale/");
    let users = Client::new(&options).unwrap().users().await.unwrap();
    assert_eq!(users, []);
}

#[tokio::test]
async fn a_call_without_an_api_key_makes_no_connection() {
    let fake = FakeServer::start(|_| response("200 OK", "", r#"{"status":"pass"}"#)).await;
    let mut options = fake.options();
    options.api_key = None;
    let client = Client::new(&options).unwrap();
    let error = client.nodes().await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::NoKey);
    assert_eq!(fake.connections(), 0);
    client.health().await.unwrap();
}

#[tokio::test]
async fn an_invalid_api_key_is_a_setup_error() {
    let fake = FakeServer::start(|_| String::new()).await;
    let mut options = fake.options();
    for key in ["two\nlines", ""] {
        options.api_key = Some(Secret::new(key));
        let error = Client::new(&options).unwrap_err();
        assert!(matches!(error, ClientSetupError::ApiKey), "{error:?}");
        assert!(!format!("{error} {error:?}").contains("lines"));
    }
}

#[tokio::test]
async fn a_dns_failure_is_reported() {
    let fake = FakeServer::start(|_| String::new()).await;
    let mut options = fake.options();
    // https://www.rfc-editor.org/rfc/rfc6761#section-6.4
    options.url = "https://headscale.invalid".to_owned();
    let error = Client::new(&options).unwrap().users().await.unwrap_err();
    assert!(
        error.to_string().contains("its name can't be resolved"),
        "{error}"
    );
}

#[tokio::test]
async fn a_server_without_tls_is_reported() {
    let fake = FakeServer::serve(|mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    })
    .await;
    let mut options = fake.options();
    options.url = options.url.replace("http", "https");
    let error = Client::new(&options).unwrap().users().await.unwrap_err();
    assert!(error.to_string().contains("does not speak TLS"), "{error}");
}
