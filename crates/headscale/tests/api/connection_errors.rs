//! A real server that is untrusted, stopped or unreachable.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use headscale::{Client, ClientOptions, ConnectError, ErrorKind, TlsError};
use lab::certify;
use lab::tools::HEADSCALE;
use tempfile::TempDir;

use crate::harness::{ADDRESS, OTHER_ADDRESS, eventually, inside, nodes, start};

async fn tls_error(options: &ClientOptions) -> TlsError {
    let error = Client::new(options).unwrap().health().await.unwrap_err();
    assert!(!error.is_retryable(), "{error:?}");
    match error.kind() {
        ErrorKind::Tls { cause, .. } => *cause,
        other => panic!("not a TLS error: {other:?}"),
    }
}

#[test]
fn a_server_with_an_untrusted_certificate_is_rejected() {
    let (node, _peer) = nodes();
    let (_headscale, access) = start(&node, &HEADSCALE);
    let files = TempDir::new().unwrap();
    let address: IpAddr = ADDRESS.parse().unwrap();
    // A CA with the same name and another key.
    let impostor = certify(address, files.path()).unwrap().ca;
    inside(&node, async || {
        let mut options = access.options();
        Client::new(&options).unwrap().health().await.unwrap();

        options.ca_file = Some(impostor);
        assert_eq!(tls_error(&options).await, TlsError::UnknownIssuer);
        options.ca_file = None;
        assert_eq!(tls_error(&options).await, TlsError::UnknownIssuer);

        let mut options = access.options();
        options.url = options.url.replace(ADDRESS, OTHER_ADDRESS);
        assert_eq!(tls_error(&options).await, TlsError::WrongName);

        let mut options = access.options();
        options.url = options.url.replace("https", "http");
        let error = Client::new(&options).unwrap().users().await.unwrap_err();
        assert!(
            error
                .to_string()
                .contains("HTTP request to an HTTPS server"),
            "{error}"
        );
    });
}

#[test]
fn the_client_reconnects_after_the_server_restarts() {
    let (node, _peer) = nodes();
    let (mut headscale, access) = start(&node, &HEADSCALE);
    let calls = Arc::new(Mutex::new(Vec::new()));
    let recorder = Arc::clone(&calls);
    inside(&node, async || {
        let client = access.client().with_observer(move |call| {
            let kind = call.error.map(ErrorKind::label);
            recorder.lock().unwrap().push((call.operation, kind));
        });
        client.users().await.unwrap();
        headscale.kill().unwrap();
        let error = client.users().await.unwrap_err();
        assert!(error.is_retryable(), "{error:?}");
        // The broken connection has left the pool.
        let error = client.users().await.unwrap_err();
        let refused = |kind: &ErrorKind| {
            matches!(
                kind,
                ErrorKind::Unreachable {
                    cause: ConnectError::ConnectionRefused,
                    ..
                }
            )
        };
        assert!(refused(error.kind()), "{error:?}");
        let text = error.to_string();
        assert!(
            text.starts_with("failed to list users at https://10.99.0.1:8443: connection refused"),
            "{text}"
        );

        headscale.restart().unwrap();
        eventually("the server answers", async || client.users().await.ok()).await;
    });
    let calls = calls.lock().unwrap();
    assert_eq!(calls[0], ("list users", None));
    assert_eq!(calls[2], ("list users", Some("unreachable")));
    assert_eq!(calls.last().unwrap(), &("list users", None));
}

#[test]
fn dropped_packets_end_in_a_timeout() {
    let (node, _peer) = nodes();
    let (_headscale, access) = start(&node, &HEADSCALE);
    inside(&node, async || {
        let mut options = access.options();
        options.timeout = Duration::from_millis(300);
        // No host has this address, and ARP takes longer than the timeout to fail.
        options.url = options.url.replace(ADDRESS, "10.99.0.77");
        let error = Client::new(&options).unwrap().users().await.unwrap_err();
        let is_timeout = |kind: &ErrorKind| {
            matches!(
                kind,
                ErrorKind::Unreachable {
                    cause: ConnectError::Timeout(_),
                    ..
                }
            )
        };
        assert!(is_timeout(error.kind()), "{error:?}");
        assert!(error.is_retryable());

        options.url = "https://192.0.2.1".to_owned();
        let error = Client::new(&options).unwrap().users().await.unwrap_err();
        assert!(error.to_string().contains("no route to host"), "{error}");
    });
}
