//! A synchronous HTTP/1.1 client for servers on a Unix socket: the daemon's API and tailscaled's
//! `LocalAPI`.
//!
//! One connection per request. The deadline covers the whole exchange, connecting included, and the
//! response body is bounded. The plugin links this, so it needs no runtime and few system calls.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};

/// A longer response head is refused.
const MAX_HEAD_BYTES: usize = 16 * 1024;
const MAX_HEADERS: usize = 64;

/// A client for one server.
#[derive(Clone, Debug)]
pub struct HttpClient {
    socket: PathBuf,
    host: String,
    timeout: Duration,
    max_body_bytes: usize,
}

/// A complete response, whatever its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status code, such as 200.
    pub status: u16,
    /// The decoded body; empty if there is none.
    pub body: Vec<u8>,
}

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// No server listens there, or this user may not connect.
    #[error("connect to {}", socket.display())]
    Connect {
        /// The Unix socket.
        socket: PathBuf,
        /// The system call's error.
        #[source]
        source: io::Error,
    },
    /// The deadline passed before the response was complete.
    #[error("no response from {} within {timeout:?}", socket.display())]
    Timeout {
        /// The Unix socket.
        socket: PathBuf,
        /// The deadline of the whole exchange.
        timeout: Duration,
    },
    /// The connection failed or was closed early.
    #[error("exchange with {} was interrupted", socket.display())]
    Io {
        /// The Unix socket.
        socket: PathBuf,
        /// The system call's error.
        #[source]
        source: io::Error,
    },
    /// The response is not valid HTTP/1.1.
    #[error("malformed HTTP response from {}: {reason}", socket.display())]
    Malformed {
        /// The Unix socket.
        socket: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The head or the body exceeds its limit.
    #[error("HTTP response from {} exceeds {limit} bytes", socket.display())]
    TooLarge {
        /// The Unix socket.
        socket: PathBuf,
        /// The limit.
        limit: usize,
    },
}

impl HttpClient {
    /// A client with a timeout of one second per request and at most 1 MiB of response body.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self {
            socket: socket.into(),
            host: "localhost".to_owned(),
            timeout: Duration::from_secs(1),
            max_body_bytes: 1024 * 1024,
        }
    }

    /// Sets the `Host` header. tailscaled accepts `local-tailscaled.sock` only.
    #[must_use]
    pub fn host(mut self, host: &str) -> Self {
        host.clone_into(&mut self.host);
        self
    }

    /// Sets the deadline of each request, from connecting to the last byte of the response.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the largest response body that is accepted.
    #[must_use]
    pub fn max_body_bytes(mut self, limit: usize) -> Self {
        self.max_body_bytes = limit;
        self
    }

    /// The Unix socket of the server.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Sends a GET request. `path` starts with `/` and may have a query.
    pub fn get(&self, path: &str) -> Result<Response, HttpError> {
        let host = &self.host;
        self.exchange(|| {
            format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").into_bytes()
        })
    }

    /// Sends a POST request with a JSON body. The body is built once the connection is open, so it
    /// costs nothing where no server listens.
    pub fn post_json(
        &self,
        path: &str,
        body: impl FnOnce() -> Vec<u8>,
    ) -> Result<Response, HttpError> {
        let host = &self.host;
        self.exchange(|| {
            let body = body();
            let head = format!(
                "POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\
                 Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            [head.into_bytes(), body].concat()
        })
    }

    fn exchange(&self, request: impl FnOnce() -> Vec<u8>) -> Result<Response, HttpError> {
        let deadline = Instant::now() + self.timeout;
        let connection = Connection {
            fd: self.connect()?,
            deadline,
        };
        connection
            .send_all(&request())
            .and_then(|()| self.read_response(&connection))
            .map_err(|failure| self.explain(failure))
    }

    fn connect(&self) -> Result<OwnedFd, HttpError> {
        let connected = || {
            let address = SocketAddrUnix::new(&self.socket)?;
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            match connect(&fd, &address) {
                // The backlog is full, and poll(2) does not wait for it. A blocking connect(2) waits for
                // SO_SNDTIMEO and then fails with EAGAIN.
                Err(Errno::AGAIN) => {
                    ioctl_fionbio(&fd, false)?;
                    set_socket_timeout(&fd, Timeout::Send, Some(self.timeout))?;
                    connect(&fd, &address)?;
                }
                connected => connected?,
            }
            Ok(fd)
        };
        connected().map_err(|errno| match errno {
            Errno::AGAIN => self.explain(Failure::Timeout),
            errno => HttpError::Connect {
                socket: self.socket.clone(),
                source: errno.into(),
            },
        })
    }

    fn read_response(&self, connection: &Connection) -> Result<Response, Failure> {
        let mut received = Received {
            connection,
            bytes: Vec::new(),
            is_closed: false,
        };
        let head = loop {
            if let Some(head) = parse_head(&received.bytes)? {
                break head;
            }
            if received.bytes.len() > MAX_HEAD_BYTES {
                return Err(Failure::TooLarge(MAX_HEAD_BYTES));
            }
            received.require_more()?;
        };
        received.bytes.drain(..head.length);
        let limit = self.max_body_bytes;
        let body = match head.body {
            BodyLength::Fixed(length) => received.take(length, limit)?,
            BodyLength::Chunked => received.take_chunks(limit)?,
            BodyLength::UntilClose => received.take_rest(limit)?,
        };
        Ok(Response {
            status: head.status,
            body,
        })
    }

    fn explain(&self, failure: Failure) -> HttpError {
        let socket = self.socket.clone();
        match failure {
            Failure::Timeout => HttpError::Timeout {
                socket,
                timeout: self.timeout,
            },
            Failure::Io(source) => HttpError::Io { socket, source },
            Failure::Malformed(reason) => HttpError::Malformed { socket, reason },
            Failure::TooLarge(limit) => HttpError::TooLarge { socket, limit },
        }
    }
}

/// An [`HttpError`] that does not name the socket yet.
enum Failure {
    Timeout,
    Io(io::Error),
    Malformed(&'static str),
    TooLarge(usize),
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Self::Io(errno.into())
    }
}

/// A connected socket whose every operation ends at the same deadline.
struct Connection {
    fd: OwnedFd,
    deadline: Instant,
}

impl Connection {
    fn send_all(&self, mut bytes: &[u8]) -> Result<(), Failure> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        while !bytes.is_empty() {
            match send(&self.fd, bytes, flags) {
                Ok(count) => bytes = &bytes[count..],
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT)?,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Appends what the server sent; 0 if it closed the connection.
    fn receive(&self, into: &mut Vec<u8>) -> Result<usize, Failure> {
        let mut chunk = [0; 8192];
        loop {
            self.wait(PollFlags::IN)?;
            match recv(&self.fd, &mut chunk, RecvFlags::DONTWAIT) {
                Ok((count, _)) => {
                    into.extend_from_slice(&chunk[..count]);
                    return Ok(count);
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn wait(&self, events: PollFlags) -> Result<(), Failure> {
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Failure::Timeout);
            }
            let timeout = Timespec::try_from(left).ok();
            match poll(&mut [PollFd::new(&self.fd, events)], timeout.as_ref()) {
                Ok(0) => return Err(Failure::Timeout),
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

struct Head {
    status: u16,
    /// In bytes, with the empty line.
    length: usize,
    body: BodyLength,
}

enum BodyLength {
    Fixed(usize),
    Chunked,
    UntilClose,
}

/// Parses a response head; none if it is not complete yet.
fn parse_head(bytes: &[u8]) -> Result<Option<Head>, Failure> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let length = match response.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(Failure::Malformed("not an HTTP response")),
    };
    let status = response.code.unwrap_or_default();
    let mut body = BodyLength::UntilClose;
    // RFC 9112, section 6.3: no body with these, and Transfer-Encoding overrides Content-Length.
    if matches!(status, 100..=199 | 204 | 304) {
        body = BodyLength::Fixed(0);
    } else {
        for header in response.headers.iter() {
            let value = std::str::from_utf8(header.value).unwrap_or_default().trim();
            if header.name.eq_ignore_ascii_case("transfer-encoding") {
                if !value.eq_ignore_ascii_case("chunked") {
                    return Err(Failure::Malformed("unknown Transfer-Encoding"));
                }
                body = BodyLength::Chunked;
            } else if header.name.eq_ignore_ascii_case("content-length")
                && !matches!(body, BodyLength::Chunked)
            {
                let length = value.parse();
                let length = length.map_err(|_| Failure::Malformed("invalid Content-Length"))?;
                body = BodyLength::Fixed(length);
            }
        }
    }
    Ok(Some(Head {
        status,
        length,
        body,
    }))
}

/// Bytes received and not consumed yet.
struct Received<'a> {
    connection: &'a Connection,
    bytes: Vec<u8>,
    is_closed: bool,
}

impl Received<'_> {
    fn receive(&mut self) -> Result<(), Failure> {
        self.is_closed = self.connection.receive(&mut self.bytes)? == 0;
        Ok(())
    }

    fn require_more(&mut self) -> Result<(), Failure> {
        self.receive()?;
        if self.is_closed {
            return Err(Failure::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(())
    }

    fn take(&mut self, length: usize, limit: usize) -> Result<Vec<u8>, Failure> {
        if length > limit {
            return Err(Failure::TooLarge(limit));
        }
        while self.bytes.len() < length {
            self.require_more()?;
        }
        let rest = self.bytes.split_off(length);
        Ok(std::mem::replace(&mut self.bytes, rest))
    }

    fn take_rest(&mut self, limit: usize) -> Result<Vec<u8>, Failure> {
        while !self.is_closed {
            if self.bytes.len() > limit {
                return Err(Failure::TooLarge(limit));
            }
            self.receive()?;
        }
        Ok(std::mem::take(&mut self.bytes))
    }

    /// Decodes a chunked body. Trailers are not read: the connection ends with the response.
    fn take_chunks(&mut self, limit: usize) -> Result<Vec<u8>, Failure> {
        let mut body = Vec::new();
        loop {
            let size = self.take_chunk_size()?;
            if size == 0 {
                return Ok(body);
            }
            let size = usize::try_from(size).unwrap_or(usize::MAX);
            if size > limit - body.len() {
                return Err(Failure::TooLarge(limit));
            }
            body.append(&mut self.take(size, limit)?);
            if self.take(2, 2)? != b"\r\n" {
                return Err(Failure::Malformed("a chunk exceeds its size"));
            }
        }
    }

    fn take_chunk_size(&mut self) -> Result<u64, Failure> {
        loop {
            match httparse::parse_chunk_size(&self.bytes) {
                Ok(httparse::Status::Complete((length, size))) => {
                    self.bytes.drain(..length);
                    return Ok(size);
                }
                Ok(httparse::Status::Partial) if self.bytes.len() <= MAX_HEAD_BYTES => {
                    self.require_more()?;
                }
                Ok(httparse::Status::Partial) => return Err(Failure::TooLarge(MAX_HEAD_BYTES)),
                Err(_) => return Err(Failure::Malformed("invalid chunk size")),
            }
        }
    }
}

#[cfg(test)]
mod tests;
