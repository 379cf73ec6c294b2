//! Bounds what a client can cost an HTTP server: connections, time and bytes.
//!
//! `axum::serve` limits nothing before a request is complete. This wraps its listener: a connection
//! carries one request, has a deadline, and may send only so many bytes. When all connections are in
//! use, the oldest one that has not sent its request yet makes room, so a thousand silent clients
//! block neither a probe nor the plugin.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::extract::{Extension, Request};
use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// What clients of a server may use.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Connections at a time; others wait in the kernel's backlog.
    pub connections: usize,
    /// From accepting a connection to the end of the request's head.
    pub header: Duration,
    /// From the end of the request's head to the end of the response.
    pub response: Duration,
    /// Head and body of a request together.
    pub request_bytes: usize,
    /// For open requests when the server shuts down.
    pub shutdown: Duration,
}

/// Serves `app` until `shutdown`, and `admit` decides which clients are listened to.
pub(crate) async fn serve<L>(
    listener: L,
    admit: fn(&L::Io) -> bool,
    app: Router,
    limits: ConnectionLimits,
    shutdown: CancellationToken,
) where
    L: Listener,
    L::Addr: Clone + Debug + Sync + 'static,
{
    let abort = CancellationToken::new();
    let listener = LimitedListener {
        inner: listener,
        admit,
        limits,
        permits: Arc::new(Semaphore::new(limits.connections)),
        waiting: VecDeque::new(),
        abort: abort.clone(),
    };
    let app = app
        .layer(middleware::from_fn(start_request::<L::Addr>))
        .into_make_service_with_connect_info::<Client<L::Addr>>();
    let serving =
        axum::serve(listener, app).with_graceful_shutdown(shutdown.clone().cancelled_owned());
    let mut serving = std::pin::pin!(serving.into_future());
    tokio::select! {
        // It never fails.
        _ = &mut serving => return,
        () = shutdown.cancelled() => {}
    }
    if timeout(limits.shutdown, &mut serving).await.is_err() {
        abort.cancel();
        serving.await.ok();
    }
}

/// The client of a request, as an extension of it.
#[derive(Clone, Debug)]
pub(crate) struct Client<A> {
    pub(crate) address: A,
    state: Arc<ConnectionState>,
    limits: ConnectionLimits,
}

impl<A> Client<A> {
    /// Extends the deadline of the response: the server itself needs this long.
    pub(crate) fn extend_deadline(&self, by: Duration) {
        self.state.set_deadline(self.limits.response + by);
    }
}

impl<L> Connected<IncomingStream<'_, LimitedListener<L>>> for Client<L::Addr>
where
    L: Listener,
    L::Addr: Clone + Sync + 'static,
{
    fn connect_info(stream: IncomingStream<'_, LimitedListener<L>>) -> Self {
        Self {
            address: stream.remote_addr().clone(),
            state: Arc::clone(&stream.io().state),
            limits: stream.io().limits,
        }
    }
}

/// One request per connection: an idle connection would take the place of another client.
async fn start_request<A: Clone + Send + Sync + 'static>(
    Extension(ConnectInfo(client)): Extension<ConnectInfo<Client<A>>>,
    request: Request,
    next: Next,
) -> Response {
    client.state.is_serving.store(true, Ordering::Relaxed);
    client.state.set_deadline(client.limits.response);
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

#[derive(Debug)]
struct ConnectionState {
    is_serving: AtomicBool,
    deadline: Mutex<Instant>,
    abort: CancellationToken,
}

impl ConnectionState {
    fn set_deadline(&self, from_now: Duration) {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + from_now;
    }

    fn deadline(&self) -> Instant {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct LimitedListener<L: Listener> {
    inner: L,
    admit: fn(&L::Io) -> bool,
    limits: ConnectionLimits,
    permits: Arc<Semaphore>,
    /// Connections without a request, the oldest first.
    waiting: VecDeque<Weak<ConnectionState>>,
    abort: CancellationToken,
}

impl<L: Listener> LimitedListener<L> {
    async fn permit(&mut self) -> OwnedSemaphorePermit {
        let is_waiting = |state: Arc<ConnectionState>| !state.is_serving.load(Ordering::Relaxed);
        self.waiting
            .retain(|state| state.upgrade().is_some_and(is_waiting));
        if self.permits.available_permits() == 0
            && let Some(oldest) = self.waiting.pop_front().and_then(|state| state.upgrade())
        {
            oldest.abort.cancel();
        }
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        permit.expect("the semaphore is never closed")
    }
}

impl<L: Listener> Listener for LimitedListener<L> {
    type Io = LimitedIo<L::Io>;
    type Addr = L::Addr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        // Lets the connection accepted before read its request, if that is there already.
        tokio::task::yield_now().await;
        let (inner, address) = loop {
            let (inner, address) = self.inner.accept().await;
            if (self.admit)(&inner) {
                break (inner, address);
            }
        };
        let permit = self.permit().await;
        let deadline = Instant::now() + self.limits.header;
        let abort = self.abort.child_token();
        let state = Arc::new(ConnectionState {
            is_serving: AtomicBool::new(false),
            deadline: Mutex::new(deadline),
            abort: abort.clone(),
        });
        self.waiting.push_back(Arc::downgrade(&state));
        let io = LimitedIo {
            inner,
            state,
            limits: self.limits,
            bytes_left: self.limits.request_bytes,
            timer: Box::pin(sleep_until(deadline)),
            aborted: Box::pin(abort.cancelled_owned()),
            _permit: permit,
        };
        (io, address)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.inner.local_addr()
    }
}

/// A connection that fails at its deadline.
struct LimitedIo<I> {
    inner: I,
    state: Arc<ConnectionState>,
    limits: ConnectionLimits,
    bytes_left: usize,
    timer: Pin<Box<Sleep>>,
    aborted: Pin<Box<WaitForCancellationFutureOwned>>,
    _permit: OwnedSemaphorePermit,
}

impl<I> LimitedIo<I> {
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let deadline = self.state.deadline();
        if self.timer.deadline() != deadline {
            self.timer.as_mut().reset(deadline);
        }
        if self.timer.as_mut().poll(cx).is_ready() || self.aborted.as_mut().poll(cx).is_ready() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for LimitedIo<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buffer))?;
        let read = buffer.filled().len() - before;
        match self.bytes_left.checked_sub(read) {
            Some(left) => self.bytes_left = left,
            None => return Poll::Ready(Err(io::ErrorKind::InvalidData.into())),
        }
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for LimitedIo<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.inner).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
