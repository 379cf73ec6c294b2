//! A server that answers whatever it is told to.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use headscale::{Client, Proxies, Secret, Settings};
pub(crate) use lab::http_answer as answer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Listens on loopback until it is dropped.
pub(crate) struct Fake {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    listening: JoinHandle<()>,
}

impl Fake {
    /// Answers each request, head and all, by its first line.
    pub(crate) async fn start(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        let answer = Arc::new(answer);
        Self::serve(move |mut stream| {
            let answer = Arc::clone(&answer);
            async move {
                while let Some(request) = request(&mut stream).await {
                    let text = answer(&request);
                    if stream.write_all(text.as_bytes()).await.is_err() {
                        return;
                    }
                }
            }
        })
        .await
    }

    /// Does something with each connection.
    pub(crate) async fn serve<F>(talk: impl Fn(TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        let listening = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(talk(stream));
            }
        });
        Self {
            address,
            connections,
            listening,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings {
            url: format!("http://{}", self.address),
            api_key: Some(Secret::new(KEY)),
            ca_file: None,
            timeout: Duration::from_secs(10),
            proxies: Proxies::none(),
        }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(&self.settings()).unwrap()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

/// Of the form that keys had before 0.28.
pub(crate) const KEY: &str = "abcdefg.0123456789abcdef";

/// The head of the next request; its body is read and forgotten.
async fn request(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).ok()?;
    let lower = head.to_lowercase();
    let mut lines = lower.lines();
    let length = lines.find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |text| text.parse().unwrap())];
    stream.read_exact(&mut body).await.ok()?;
    Some(head)
}
