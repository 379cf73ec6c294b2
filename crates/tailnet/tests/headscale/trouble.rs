//! A real server that is not trusted, not there, or gone in the middle.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lab::certify;
use lab::tools::HEADSCALE;
use tailnet::headscale::{Client, Problem, Settings, TlsFault, Unreachable};
use tempfile::TempDir;

use crate::stage::{ADDRESS, OTHER_ADDRESS, eventually, inside, nodes, start};

async fn tls_fault(settings: &Settings) -> TlsFault {
    let error = Client::new(settings).unwrap().health().await.unwrap_err();
    assert!(!error.is_transient(), "{error:?}");
    match error.problem() {
        Problem::Tls { why, .. } => *why,
        other => panic!("no problem of TLS: {other:?}"),
    }
}

#[test]
fn a_server_has_to_prove_that_it_is_the_one() {
    let (node, _peer) = nodes();
    let (_headscale, access) = start(&node, &HEADSCALE);
    let files = TempDir::new().unwrap();
    let address: IpAddr = ADDRESS.parse().unwrap();
    // It has the same name as the right one, and another key.
    let impostor = certify(address, files.path()).unwrap().ca;
    inside(&node, async || {
        let mut settings = access.settings();
        Client::new(&settings).unwrap().health().await.unwrap();

        settings.ca_file = Some(impostor);
        assert_eq!(tls_fault(&settings).await, TlsFault::UnknownAuthority);
        settings.ca_file = None;
        assert_eq!(tls_fault(&settings).await, TlsFault::UnknownAuthority);

        let mut settings = access.settings();
        settings.url = settings.url.replace(ADDRESS, OTHER_ADDRESS);
        assert_eq!(tls_fault(&settings).await, TlsFault::WrongName);

        let mut settings = access.settings();
        settings.url = settings.url.replace("https", "http");
        let error = Client::new(&settings).unwrap().users().await.unwrap_err();
        assert!(
            error
                .to_string()
                .contains("HTTP request to an HTTPS server"),
            "{error}"
        );
    });
}

#[test]
fn a_server_that_is_gone_is_found_again() {
    let (node, _peer) = nodes();
    let (mut headscale, access) = start(&node, &HEADSCALE);
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hearing = Arc::clone(&heard);
    inside(&node, async || {
        let client = access.client().observed(move |call| {
            let kind = call.problem.map(Problem::kind);
            hearing.lock().unwrap().push((call.operation, kind));
        });
        client.users().await.unwrap();
        headscale.kill().unwrap();
        let error = client.users().await.unwrap_err();
        assert!(error.is_transient(), "{error:?}");
        // By then, the connection that broke is forgotten.
        let error = client.users().await.unwrap_err();
        let refused = |problem: &Problem| {
            matches!(
                problem,
                Problem::Unreachable {
                    why: Unreachable::Refused,
                    ..
                }
            )
        };
        assert!(refused(error.problem()), "{error:?}");
        let words = error.to_string();
        assert!(
            words.starts_with("list users at https://10.99.0.1:8443: nobody listens"),
            "{words}"
        );

        headscale.restart().unwrap();
        eventually("it answers again", async || client.users().await.ok()).await;
    });
    let heard = heard.lock().unwrap();
    assert_eq!(heard[0], ("list users", None));
    assert_eq!(heard[2], ("list users", Some("unreachable")));
    assert_eq!(heard.last().unwrap(), &("list users", None));
}

#[test]
fn packets_that_are_dropped_end_in_a_timeout() {
    let (node, _peer) = nodes();
    let (_headscale, access) = start(&node, &HEADSCALE);
    inside(&node, async || {
        let mut settings = access.settings();
        settings.timeout = Duration::from_millis(300);
        // Nobody has this address, and nobody says so within that time.
        settings.url = settings.url.replace(ADDRESS, "10.99.0.77");
        let error = Client::new(&settings).unwrap().users().await.unwrap_err();
        let is_timeout = |problem: &Problem| {
            matches!(
                problem,
                Problem::Unreachable {
                    why: Unreachable::Timeout(_),
                    ..
                }
            )
        };
        assert!(is_timeout(error.problem()), "{error:?}");
        assert!(error.is_transient());

        settings.url = "https://192.0.2.1".to_owned();
        let error = Client::new(&settings).unwrap().users().await.unwrap_err();
        assert!(error.to_string().contains("no way there"), "{error}");
    });
}
