//! A running admin server, and a client that sends what it likes.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use daemon::admin::{AdminContext, LIMITS, Server};
use daemon::connections::ConnectionLimits;
use node_config::Monitoring;
use tokio_util::sync::CancellationToken;

/// Nothing takes longer, even on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) struct Admin {
    pub(crate) address: SocketAddr,
    pub(crate) context: AdminContext,
    reload: tokio::sync::mpsc::UnboundedSender<Monitoring>,
    shutdown: CancellationToken,
    thread: Option<JoinHandle<()>>,
    _profiler: Option<MutexGuard<'static, ()>>,
}

pub(crate) fn local(pprof: bool) -> Monitoring {
    Monitoring {
        address: SocketAddr::from(([127, 0, 0, 1], 0)),
        pprof,
        ..Monitoring::default()
    }
}

impl Admin {
    pub(crate) fn new() -> Self {
        Self::with(local(false), LIMITS)
    }

    /// Starts a server on a runtime like the daemon's, in the netns of this thread.
    pub(crate) fn with(monitoring: Monitoring, limits: ConnectionLimits) -> Self {
        let profiler = monitoring.pprof.then(profiler);
        Self::start(monitoring, limits, profiler)
    }

    /// Starts one whose profiles are disabled and will be enabled.
    pub(crate) fn with_profiler_lock() -> Self {
        Self::start(local(false), LIMITS, Some(profiler()))
    }

    fn start(
        monitoring: Monitoring,
        limits: ConnectionLimits,
        profiler: Option<MutexGuard<'static, ()>>,
    ) -> Self {
        let context = AdminContext {
            heartbeat: Arc::default(),
            conditions: Arc::default(),
            metrics: Arc::default(),
        };
        let shutdown = CancellationToken::new();
        let (reload, mut reloads) = tokio::sync::mpsc::unbounded_channel();
        let (started, starting) = mpsc::channel();
        let (of_server, stopping) = (context.clone(), shutdown.clone());
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(async {
                let server = Server::start(&monitoring, of_server, limits, &stopping);
                let server = server.await.unwrap();
                started.send(server.address()).unwrap();
                while let Some(Some(next)) = stopping.run_until_cancelled(reloads.recv()).await {
                    server.reload(&next);
                }
                server.shutdown().await;
            });
        });
        Self {
            address: starting.recv_timeout(TIMEOUT).unwrap(),
            context,
            reload,
            shutdown,
            thread: Some(thread),
            _profiler: profiler,
        }
    }

    pub(crate) fn reload(&self, monitoring: Monitoring) {
        self.reload.send(monitoring).unwrap();
    }

    /// Stops the server; returns how long that took.
    pub(crate) fn stop(mut self) -> Duration {
        let started = Instant::now();
        self.shutdown.cancel();
        self.thread.take().unwrap().join().unwrap();
        started.elapsed()
    }

    pub(crate) fn connect(&self) -> TcpStream {
        connect(self.address)
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"))
    }

    pub(crate) fn send(&self, request: &str) -> Response {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        Response::read(&mut stream)
    }

    /// The same, by another of this machine's addresses.
    pub(crate) fn get_by(&self, ip: IpAddr, path: &str) -> Response {
        let mut stream = connect(SocketAddr::new(ip, self.address.port()));
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        Response::read(&mut stream)
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        self.shutdown.cancel();
        if let Some(thread) = self.thread.take() {
            // If it panicked, the test has failed already.
            let _ = thread.join();
        }
    }
}

/// A process has one profiler, and tests are threads of one process.
fn profiler() -> MutexGuard<'static, ()> {
    static PROFILER: Mutex<()> = Mutex::new(());
    PROFILER.lock().unwrap_or_else(PoisonError::into_inner)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&address, TIMEOUT).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
}

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Response {
    /// Reads until the server closes, which it does after each response.
    pub(crate) fn read(stream: &mut TcpStream) -> Self {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        Self::parse(&bytes).unwrap_or_else(|| panic!("no response: {bytes:?}"))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
        let head = std::str::from_utf8(&bytes[..end]).ok()?;
        let mut lines = head.lines();
        let status = lines.next()?.strip_prefix("HTTP/1.1 ")?;
        let headers = lines.map(|line| {
            let (name, value) = line.split_once(": ")?;
            Some((name.to_lowercase(), value.to_owned()))
        });
        Some(Self {
            status: status.get(..3)?.parse().ok()?,
            headers: headers.collect::<Option<_>>()?,
            body: bytes[end + 4..].to_vec(),
        })
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// Waits until the server closes a connection; returns how long that took.
pub(crate) fn closed(stream: &mut TcpStream, since: Instant) -> Duration {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}"),
    }
    since.elapsed()
}
