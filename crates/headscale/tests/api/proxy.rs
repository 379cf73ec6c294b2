//! Proxies, which are used with CONNECT.

use std::sync::{Arc, Mutex};

use headscale::{Client, ClientSetupError, ConnectError, ErrorKind, Proxies};
use lab::tools::HEADSCALE;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::TcpStream;

use crate::harness::{FakeServer, response};
use crate::harness::{inside, nodes, start};

/// A proxy, and the heads of the requests that it got.
async fn proxy() -> (FakeServer, Arc<Mutex<Vec<String>>>) {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let recorder = Arc::clone(&requests);
    let proxy = FakeServer::serve(move |mut client| {
        let recorder = Arc::clone(&recorder);
        async move {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(client.read_u8().await.unwrap());
            }
            let head = String::from_utf8(head).unwrap();
            let target = head.split_whitespace().nth(1).unwrap().to_owned();
            recorder.lock().unwrap().push(head);
            let mut server = TcpStream::connect(target).await.unwrap();
            client
                .write_all(b"HTTP/1.1 200 Connected\r\n\r\n")
                .await
                .unwrap();
            let _ = copy_bidirectional(&mut client, &mut server).await;
        }
    })
    .await;
    (proxy, requests)
}

#[test]
fn https_goes_through_a_tunnel_of_the_proxy() {
    let (node, _peer) = nodes();
    let (_headscale, access) = start(&node, &HEADSCALE);
    inside(&node, async || {
        let (proxy, requests) = proxy().await;
        let mut options = access.options();
        let url = format!("http://me:word@{}", proxy.address());
        options.proxies = Proxies::new(&url, "");
        let client = Client::new(&options).unwrap();
        client.users().await.unwrap();
        client.users().await.unwrap();
        let heads = requests.lock().unwrap().clone();
        assert_eq!(heads.len(), 1, "{heads:?}");
        assert!(
            heads[0].starts_with("CONNECT 10.99.0.1:8443 HTTP/1.1"),
            "{heads:?}"
        );
        assert!(
            heads[0].contains("Proxy-Authorization: Basic bWU6d29yZA=="),
            "{heads:?}"
        );

        options.proxies = Proxies::new(&url, "10.99.0.0/16");
        Client::new(&options).unwrap().users().await.unwrap();
        assert_eq!(proxy.connections(), 1);
    });
}

#[tokio::test]
async fn a_failing_proxy_is_named_without_its_password() {
    let proxy = FakeServer::start(|_| response("403 Forbidden", "", "")).await;
    let mut options = proxy.options();
    options.url = "https://headscale.example.org".to_owned();
    options.proxies = Proxies::new(&format!("http://me:word@{}", proxy.address()), "");
    let error = Client::new(&options).unwrap().users().await.unwrap_err();
    let is_proxy_error = |kind: &ErrorKind| {
        matches!(
            kind,
            ErrorKind::Unreachable {
                cause: ConnectError::Proxy(_),
                ..
            }
        )
    };
    assert!(is_proxy_error(error.kind()), "{error:?}");
    let shown = format!("{error} {error:?} {options:?}");
    assert!(
        shown.contains(&proxy.address().to_string()) && !shown.contains("word"),
        "{shown}"
    );
}

#[tokio::test]
async fn an_unsupported_proxy_is_a_setup_error() {
    let fake = FakeServer::start(|_| String::new()).await;
    let mut options = fake.options();
    options.proxies = Proxies::new("socks5://me:word@127.0.0.1:1080", "");
    let error = Client::new(&options).unwrap_err();
    assert!(matches!(error, ClientSetupError::Proxy(_)), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("word"));
}
