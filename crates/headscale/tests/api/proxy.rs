//! Proxies: the environment names them, and they make tunnels.

use std::sync::{Arc, Mutex};

use headscale::{Client, Problem, Proxies, SetupError, Unreachable};
use lab::tools::HEADSCALE;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::TcpStream;

use crate::fake::{Fake, answer};
use crate::stage::{inside, nodes, start};

/// A proxy, and what it was asked for.
async fn proxy() -> (Fake, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noting = Arc::clone(&asked);
    let proxy = Fake::serve(move |mut client| {
        let noting = Arc::clone(&noting);
        async move {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(client.read_u8().await.unwrap());
            }
            let head = String::from_utf8(head).unwrap();
            let target = head.split_whitespace().nth(1).unwrap().to_owned();
            noting.lock().unwrap().push(head);
            let mut server = TcpStream::connect(target).await.unwrap();
            client
                .write_all(b"HTTP/1.1 200 Connected\r\n\r\n")
                .await
                .unwrap();
            let _ = copy_bidirectional(&mut client, &mut server).await;
        }
    })
    .await;
    (proxy, asked)
}

#[test]
fn a_proxy_sees_nothing_of_what_is_said() {
    let (node, _peer) = nodes();
    let (_headscale, access) = start(&node, &HEADSCALE);
    inside(&node, async || {
        let (proxy, asked) = proxy().await;
        let mut settings = access.settings();
        let url = format!("http://me:word@{}", proxy.address());
        settings.proxies = Proxies::new(&url, "");
        let client = Client::new(&settings).unwrap();
        client.users().await.unwrap();
        client.users().await.unwrap();
        let heads = asked.lock().unwrap().clone();
        assert_eq!(heads.len(), 1, "{heads:?}");
        assert!(
            heads[0].starts_with("CONNECT 10.99.0.1:8443 HTTP/1.1"),
            "{heads:?}"
        );
        assert!(
            heads[0].contains("Proxy-Authorization: Basic bWU6d29yZA=="),
            "{heads:?}"
        );

        settings.proxies = Proxies::new(&url, "10.99.0.0/16");
        Client::new(&settings).unwrap().users().await.unwrap();
        assert_eq!(proxy.connections(), 1);
    });
}

#[tokio::test]
async fn a_proxy_that_refuses_is_named_without_its_password() {
    let proxy = Fake::start(|_| answer("403 Forbidden", "", "")).await;
    let mut settings = proxy.settings();
    settings.url = "https://headscale.example.org".to_owned();
    settings.proxies = Proxies::new(&format!("http://me:word@{}", proxy.address()), "");
    let error = Client::new(&settings).unwrap().users().await.unwrap_err();
    let is_proxys = |problem: &Problem| {
        matches!(
            problem,
            Problem::Unreachable {
                why: Unreachable::Proxy(_),
                ..
            }
        )
    };
    assert!(is_proxys(error.problem()), "{error:?}");
    let shown = format!("{error} {error:?} {settings:?}");
    assert!(
        shown.contains(&proxy.address().to_string()) && !shown.contains("word"),
        "{shown}"
    );
}

#[tokio::test]
async fn a_proxy_of_another_kind_is_refused() {
    let fake = Fake::start(|_| String::new()).await;
    let mut settings = fake.settings();
    settings.proxies = Proxies::new("socks5://me:word@127.0.0.1:1080", "");
    let error = Client::new(&settings).unwrap_err();
    assert!(matches!(error, SetupError::Proxy(_)), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("word"));
}
