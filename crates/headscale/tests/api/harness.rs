//! Servers for the client: a real Headscale in a lab node, or one with canned responses.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use headscale::{Client, ClientOptions, Proxies, Secret};
use lab::tools::GoModule;
use lab::{Headscale, Netns, Node};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

pub(crate) use lab::http_answer as response;

/// Headscale's address.
pub(crate) const ADDRESS: &str = "10.99.0.1";
/// Another address of the same node, which is not in the certificate.
pub(crate) const OTHER_ADDRESS: &str = "10.99.0.3";
const PEER_ADDRESS: &str = "10.99.0.2";
/// Generous, because the test machine may be busy.
const TIMEOUT: Duration = Duration::from_secs(20);
const DEADLINE: Duration = Duration::from_mins(1);
/// An API key in the format before 0.28.
pub(crate) const KEY: &str = "abcdefg.0123456789abcdef";

/// A node for Headscale and a connected one for tailscaled.
pub(crate) fn nodes() -> (Node, Node) {
    let (server, peer) = (Node::new("server").unwrap(), Node::new("peer").unwrap());
    let [ours, theirs, other] =
        [ADDRESS, PEER_ADDRESS, OTHER_ADDRESS].map(|address| format!("{address}/24"));
    server.wire("eth0", &ours, &peer, &theirs).unwrap();
    server
        .run(["ip", "address", "add", &other, "dev", "eth0"])
        .unwrap();
    (server, peer)
}

pub(crate) fn start(node: &Node, version: &GoModule) -> (Headscale, Access) {
    let address: IpAddr = ADDRESS.parse().unwrap();
    let headscale = Headscale::start(node, version, address).unwrap();
    let access = Access {
        url: headscale.url(),
        ca_file: Some(headscale.ca_file().to_owned()),
        api_key: headscale.api_key().unwrap(),
    };
    (headscale, access)
}

/// What a client of a real Headscale needs.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) url: String,
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) api_key: String,
}

impl Access {
    pub(crate) fn client(&self) -> Client {
        Client::new(&self.options()).unwrap()
    }

    pub(crate) fn options(&self) -> ClientOptions {
        ClientOptions {
            url: self.url.clone(),
            api_key: Some(Secret::new(&self.api_key)),
            ca_file: self.ca_file.clone(),
            timeout: TIMEOUT,
            proxies: Proxies::none(),
        }
    }
}

/// Runs a future in a node's netns.
pub(crate) fn inside<T: Send>(node: &Node, work: impl AsyncFnOnce() -> T + Send) -> T {
    let run = || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(work())
    };
    node.enter(run).unwrap()
}

/// Polls until `probe` returns something.
pub(crate) async fn eventually<T>(what: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = probe().await {
            return found;
        }
        assert!(Instant::now() < end, "{what}: not within {DEADLINE:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A server on loopback with canned responses.
pub(crate) struct FakeServer {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    accept_loop: JoinHandle<()>,
}

impl FakeServer {
    /// `respond` gets the head of each request.
    pub(crate) async fn start(respond: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        let respond = Arc::new(respond);
        Self::serve(move |mut stream| {
            let respond = Arc::clone(&respond);
            async move {
                while let Some(request) = read_request(&mut stream).await {
                    let text = respond(&request);
                    if stream.write_all(text.as_bytes()).await.is_err() {
                        return;
                    }
                }
            }
        })
        .await
    }

    /// `handle` gets each connection.
    pub(crate) async fn serve<F>(handle: impl Fn(TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        let accept_loop = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(handle(stream));
            }
        });
        Self {
            address,
            connections,
            accept_loop,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    pub(crate) fn options(&self) -> ClientOptions {
        ClientOptions {
            url: format!("http://{}", self.address),
            api_key: Some(Secret::new(KEY)),
            ca_file: None,
            timeout: Duration::from_secs(10),
            proxies: Proxies::none(),
        }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(&self.options()).unwrap()
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.accept_loop.abort();
    }
}

/// Reads a request, and returns its head.
async fn read_request(stream: &mut TcpStream) -> Option<String> {
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
