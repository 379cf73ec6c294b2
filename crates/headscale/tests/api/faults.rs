//! What no real Headscale of ours does: be too old, sit behind a proxy, send too much, or too slowly.

use std::time::Duration;

use headscale::{Client, Generation, Problem, Secret, SetupError, Unreachable};
use jiff::SignedDuration;
use rstest::rstest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::fake::{Fake, KEY, answer};

#[tokio::test]
async fn an_old_server_is_refused_with_what_to_do() {
    let fake = Fake::start(|request| {
        if !request.contains("openapiv2.json") {
            return answer("404 Not Found", "", "");
        }
        let paths = r#"{"/api/v1/routes":{},"/api/v1/node":{}}"#;
        let info = r#"{"title":"headscale/v1/headscale.proto"}"#;
        answer(
            "200 OK",
            "",
            &format!(r#"{{"info":{info},"paths":{paths}}}"#),
        )
    })
    .await;
    let error = fake.client().version().await.unwrap_err();
    let version = "0.25 or older".to_owned();
    assert_eq!(error.problem(), &Problem::TooOld { version });
    assert!(
        error.to_string().ends_with("upgrade it to 0.26 or newer"),
        "{error}"
    );
}

#[tokio::test]
async fn a_newer_server_is_taken_for_one() {
    let fake = Fake::start(|_| answer("200 OK", "", r#"{"version":"v0.31.0"}"#)).await;
    assert_eq!(fake.client().generation().await.unwrap(), Generation::Newer);
}

#[rstest]
#[case("404 Not Found", "<html><title>404 nginx</title></html>", "404 nginx")]
#[case("200 OK", "<!DOCTYPE html><p>Welcome!", "Welcome!")]
#[case("200 OK", r#"{"major":"1","gitVersion":"v1.37.0"}"#, "gitVersion")]
#[tokio::test]
async fn a_server_of_another_kind_is_named(
    #[case] status: &'static str,
    #[case] body: &'static str,
    #[case] words: &str,
) {
    let fake = Fake::start(move |_| answer(status, "", body)).await;
    let error = fake.client().version().await.unwrap_err();
    assert!(
        matches!(error.problem(), Problem::NotHeadscale { .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains(words), "{error}");
}

#[rstest]
#[case("502 Bad Gateway", true)]
#[case("503 Service Unavailable", true)]
#[case("403 Forbidden", false)]
#[tokio::test]
async fn a_proxys_page_is_shown_in_short(#[case] status: &'static str, #[case] passes: bool) {
    let page = format!("<html><title>{status}</title>{}</html>", "x".repeat(10_000));
    let fake = Fake::start(move |_| answer(status, "", &page)).await;
    let error = fake.client().nodes().await.unwrap_err();
    assert_eq!(error.is_transient(), passes);
    let words = error.to_string();
    assert!(
        words.contains(&format!("a page: {status}")) && words.len() < 300,
        "{words}"
    );
}

#[tokio::test]
async fn a_redirect_is_named_and_not_followed() {
    let other = Fake::start(|_| answer("200 OK", "", r#"{"users":[]}"#)).await;
    let to = format!("Location: http://{}/sub/api/v1/user\r\n", other.address());
    let fake = Fake::start(move |_| answer("301 Moved Permanently", &to, "")).await;
    let error = fake.client().users().await.unwrap_err();
    let to = format!("http://{}/sub", other.address());
    assert_eq!(error.problem(), &Problem::Redirected { to });
    assert_eq!(other.connections(), 0);
}

#[rstest]
#[case("400 Bad Request")]
// As of a page to log in at, which answers whatever it is asked.
#[case("200 OK")]
#[tokio::test]
async fn what_a_proxy_repeats_does_not_show_the_key(#[case] status: &'static str) {
    let fake = Fake::start(move |request| answer(status, "", request)).await;
    let error = fake.client().users().await.unwrap_err();
    let shown = format!("{error} {error:?} {:?}", fake.settings());
    assert!(shown.contains("Bearer") && !shown.contains(KEY), "{shown}");
}

#[tokio::test]
async fn too_much_is_not_read() {
    let fake = Fake::serve(|mut stream| async move {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let chunk = format!("100000\r\n{}\r\n", " ".repeat(0x0010_0000));
        let _ = stream.read(&mut [0; 1024]).await;
        let _ = stream.write_all(head.as_bytes()).await;
        while stream.write_all(chunk.as_bytes()).await.is_ok() {}
    })
    .await;
    let error = fake.client().nodes().await.unwrap_err();
    assert!(
        matches!(error.problem(), Problem::TooLarge { .. }),
        "{error:?}"
    );
}

#[tokio::test]
async fn too_slow_is_not_waited_for() {
    let fake = Fake::serve(|mut stream| async move {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n";
        let _ = stream.read(&mut [0; 1024]).await;
        let _ = stream.write_all(head.as_bytes()).await;
        while stream.write_all(b" ").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let mut settings = fake.settings();
    settings.timeout = Duration::from_millis(200);
    let error = Client::new(&settings).unwrap().nodes().await.unwrap_err();
    let why = Unreachable::Timeout(settings.timeout);
    let detail = String::new();
    assert_eq!(error.problem(), &Problem::Unreachable { why, detail });
}

#[rstest]
#[case(
    r#"{"nodes":[{"id":"one"}]}"#,
    "other JSON than expected, line 1 column "
)]
#[case(r#"{"nodes":["#, "damaged JSON, line 1 column ")]
#[case("", "the answer can't be read")]
#[case("pong", "pong")]
#[tokio::test]
async fn what_can_t_be_read_is_said(#[case] body: &'static str, #[case] words: &str) {
    let fake = Fake::start(move |_| answer("200 OK", "", body)).await;
    let error = fake.client().nodes().await.unwrap_err();
    assert!(
        matches!(error.problem(), Problem::Malformed { .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains(words), "{error}");
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let fake = Fake::start(|_| answer("200 OK", "", r#"{"users":[]}"#)).await;
    let client = fake.client();
    for _ in 0..5 {
        client.users().await.unwrap();
    }
    assert_eq!(fake.connections(), 1);
}

#[tokio::test]
async fn a_wrong_clock_is_seen() {
    let date = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    let fake = Fake::start(move |_| answer("200 OK", date, r#"{"users":[]}"#)).await;
    let client = fake.client();
    assert_eq!(client.clock(), None);
    client.users().await.unwrap();
    // The server lives in the past, so this node is ahead of it.
    assert!(client.clock().unwrap().local_ahead() > SignedDuration::from_hours(24 * 365 * 30));
}

#[tokio::test]
async fn a_path_in_the_address_stays() {
    let fake = Fake::start(|request| {
        let is_there = request.starts_with("GET /head/scale/api/v1/user HTTP/1.1");
        let status = if is_there { "200 OK" } else { "404 Not Found" };
        answer(status, "", "{}")
    })
    .await;
    let mut settings = fake.settings();
    settings.url.push_str("/head/scale/");
    let users = Client::new(&settings).unwrap().users().await.unwrap();
    assert_eq!(users, []);
}

#[tokio::test]
async fn without_a_key_nobody_is_asked() {
    let fake = Fake::start(|_| answer("200 OK", "", r#"{"status":"pass"}"#)).await;
    let mut settings = fake.settings();
    settings.api_key = None;
    let client = Client::new(&settings).unwrap();
    let error = client.nodes().await.unwrap_err();
    assert_eq!(error.problem(), &Problem::NoKey);
    assert_eq!(fake.connections(), 0);
    client.health().await.unwrap();
}

#[tokio::test]
async fn a_key_that_is_none_is_refused_at_once() {
    let fake = Fake::start(|_| String::new()).await;
    let mut settings = fake.settings();
    for key in ["two\nlines", ""] {
        settings.api_key = Some(Secret::new(key));
        let error = Client::new(&settings).unwrap_err();
        assert!(matches!(error, SetupError::ApiKey), "{error:?}");
        assert!(!format!("{error} {error:?}").contains("lines"));
    }
}

#[tokio::test]
async fn a_name_without_an_address_is_said() {
    let fake = Fake::start(|_| String::new()).await;
    let mut settings = fake.settings();
    // https://www.rfc-editor.org/rfc/rfc6761#section-6.4
    settings.url = "https://headscale.invalid".to_owned();
    let error = Client::new(&settings).unwrap().users().await.unwrap_err();
    assert!(
        error.to_string().contains("its name can't be resolved"),
        "{error}"
    );
}

#[tokio::test]
async fn a_server_without_tls_is_said() {
    let fake = Fake::serve(|mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    })
    .await;
    let mut settings = fake.settings();
    settings.url = settings.url.replace("http", "https");
    let error = Client::new(&settings).unwrap().users().await.unwrap_err();
    assert!(error.to_string().contains("does not speak TLS"), "{error}");
}
