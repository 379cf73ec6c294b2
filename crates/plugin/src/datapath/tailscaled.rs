//! Asks tailscaled itself whether this node is in its tailnet, where no daemon of ours knows it.
//!
//! One request of its local API, which is HTTP/1.1 over a Unix socket: bounded in time and size,
//! because STATUS must not hang where tailscaled does. It only reads.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use cni::Error;
use cni::code::LIMITED_CONNECTIVITY;
use serde::Deserialize;

/// Without peers an answer has a few kilobytes.
const MAX_ANSWER_BYTES: u64 = 1024 * 1024;
/// Any other host is refused, so that no browser can be led here.
const REQUEST: &str = "GET /localapi/v0/status?peers=false HTTP/1.1\r\n\
    Host: local-tailscaled.sock\r\nConnection: close\r\n\r\n";

/// What tailscaled says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct State {
    #[serde(rename = "BackendState")]
    backend: String,
}

/// Why tailscaled's state isn't known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TailscaledError {
    /// Nobody listens there, or it may not be asked.
    #[error("connect to tailscaled at {}", socket.display())]
    Unreachable {
        /// Its socket.
        socket: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The request or the answer broke off, or took too long.
    #[error("ask tailscaled at {} for its status", socket.display())]
    Interrupted {
        /// Its socket.
        socket: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The answer is none of tailscaled's.
    #[error("tailscaled at {} answered {answer:?} instead of its status", socket.display())]
    Foreign {
        /// Its socket.
        socket: PathBuf,
        /// How it begins.
        answer: String,
    },
}

impl State {
    /// Whether the node is in its tailnet.
    pub(crate) fn is_running(&self) -> bool {
        self.backend == "Running"
    }

    /// What is to be done about a state that isn't the right one.
    /// The names are those of `ipn.State` in tailscale's `ipn/backend.go`.
    fn way_out(&self) -> &'static str {
        match self.backend.as_str() {
            "NeedsLogin" => "log this node in, with `tailscale up --login-server` and an auth key",
            "NeedsMachineAuth" => "approve this node in Headscale",
            "Stopped" => "start it with `tailscale up`",
            "InUseOtherUser" => "end the session of the other user",
            _ => "wait until it has started, or look at its log",
        }
    }
}

/// Fails unless the node is in its tailnet: the answer to a strict STATUS.
pub(crate) fn check_running(socket: &Path, deadline: Duration) -> Result<(), Error> {
    match state(socket, deadline) {
        Ok(state) if state.is_running() => Ok(()),
        Ok(state) => Err(Error::new(
            LIMITED_CONNECTIVITY,
            format!(
                "tailscaled at {} is in state {:?}, so that pods reach this node only: {}",
                socket.display(),
                beginning(&state.backend),
                state.way_out()
            ),
        )),
        Err(error) => {
            let error = Error::caused(LIMITED_CONNECTIVITY, &error);
            let msg = format!(
                "{}: pods reach this node only; start tailscaled, or set tailscale_socket to \
                 where it listens",
                error.msg
            );
            Err(Error { msg, ..error })
        }
    }
}

/// Asks for tailscaled's state. The deadline is for all of it together.
pub(crate) fn state(socket: &Path, deadline: Duration) -> Result<State, TailscaledError> {
    let until = Instant::now() + deadline;
    let stream = connect(socket, deadline).map_err(|source| TailscaledError::Unreachable {
        socket: socket.to_owned(),
        source,
    })?;
    let answer = exchange(&stream, until).map_err(|source| TailscaledError::Interrupted {
        socket: socket.to_owned(),
        source,
    })?;
    let foreign = |text: &str| TailscaledError::Foreign {
        socket: socket.to_owned(),
        answer: beginning(text),
    };
    let body = String::from_utf8_lossy(&answer.body);
    if answer.status != 200 {
        return Err(foreign(&format!("{} {}", answer.status, body.trim())));
    }
    serde_json::from_slice(&answer.body).map_err(|_| foreign(body.trim()))
}

/// The beginning of a text from outside, for a message.
fn beginning(text: &str) -> String {
    text.chars().take(80).collect()
}

/// A daemon that accepts nothing any more blocks `connect` when its queue is full, and the
/// standard library has no deadline for it. A thread that still waits ends with the process.
fn connect(socket: &Path, deadline: Duration) -> io::Result<UnixStream> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let socket = socket.to_owned();
    thread::Builder::new().spawn(move || {
        // The receiver is gone if the deadline has passed: nobody wants the connection then.
        let _ = sender.send(UnixStream::connect(socket));
    })?;
    receiver
        .recv_timeout(deadline)
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

struct Answer {
    status: u16,
    body: Vec<u8>,
}

fn exchange(stream: &UnixStream, until: Instant) -> io::Result<Answer> {
    let mut stream = Timed { stream, until };
    stream.write_all(REQUEST.as_bytes())?;
    read_answer(BufReader::new(stream.take(MAX_ANSWER_BYTES)))
}

/// A stream whose every call ends at the same time.
struct Timed<'a> {
    stream: &'a UnixStream,
    until: Instant,
}

impl Timed<'_> {
    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        // Zero would mean to wait for ever.
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(left)
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(buffer).map_err(timed_out)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(bytes).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// The kernel calls a time-out EAGAIN, "resource temporarily unavailable": no help to anybody.
fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

fn invalid(trouble: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, trouble.to_owned())
}

/// An answer of HTTP/1.1: <https://www.rfc-editor.org/rfc/rfc9112>.
fn read_answer(mut stream: impl BufRead) -> io::Result<Answer> {
    let status_line = line(&mut stream)?;
    let status = status_line
        .strip_prefix("HTTP/1.")
        .and_then(|rest| rest.split(' ').nth(1))
        .and_then(|status| status.parse().ok())
        .ok_or_else(|| invalid("the answer is not HTTP"))?;
    let mut length: Option<u64> = None;
    let mut is_chunked = false;
    loop {
        let header = line(&mut stream)?;
        if header.is_empty() {
            break;
        }
        let (name, value) = header.split_once(':').unwrap_or((&header, ""));
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            let value = value.parse();
            length = Some(value.map_err(|_| invalid("the answer's length is no number"))?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            is_chunked = value.eq_ignore_ascii_case("chunked");
        }
    }
    let mut body = Vec::new();
    if is_chunked {
        while read_chunk(&mut stream, &mut body)? > 0 {}
    } else if let Some(length) = length {
        read_exactly(&mut stream, length, &mut body)?;
    } else {
        stream.read_to_end(&mut body)?;
    }
    Ok(Answer { status, body })
}

/// Reads a chunk and gives its size; the last one has none, and what follows it is of no interest.
fn read_chunk(stream: &mut impl BufRead, body: &mut Vec<u8>) -> io::Result<u64> {
    let header = line(stream)?;
    let digits = header.split(';').next().unwrap_or_default().trim();
    let size = u64::from_str_radix(digits, 16)
        .map_err(|_| invalid("a chunk of the answer has no size"))?;
    if size > 0 {
        read_exactly(stream, size, body)?;
        if !line(stream)?.is_empty() {
            return Err(invalid("a chunk of the answer is longer than it says"));
        }
    }
    Ok(size)
}

fn read_exactly(stream: &mut impl BufRead, length: u64, body: &mut Vec<u8>) -> io::Result<()> {
    let read = stream.take(length).read_to_end(body)?;
    if read as u64 == length {
        return Ok(());
    }
    Err(cut_off())
}

fn cut_off() -> io::Error {
    let trouble = format!("the answer was cut off, or has more than {MAX_ANSWER_BYTES} bytes");
    io::Error::new(io::ErrorKind::UnexpectedEof, trouble)
}

/// A line without its end.
fn line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    stream.read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Err(cut_off());
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use rstest::rstest;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);
    const SHORT: Duration = Duration::from_millis(50);

    /// A server that answers each request with `answer`, and keeps the connection open.
    struct Fake {
        directory: tempfile::TempDir,
    }

    impl Fake {
        fn answering(answer: &str) -> Self {
            let directory = tempfile::tempdir().unwrap();
            let fake = Self { directory };
            let listener = UnixListener::bind(fake.socket()).unwrap();
            let answer = answer.to_owned();
            thread::spawn(move || {
                let mut open = Vec::new();
                for stream in listener.incoming() {
                    let mut stream = stream.unwrap();
                    let mut reader = BufReader::new(stream.try_clone().unwrap());
                    let mut request = String::new();
                    while !request.ends_with("\r\n\r\n") {
                        assert!(reader.read_line(&mut request).unwrap() > 0);
                    }
                    assert!(request.starts_with("GET /localapi/v0/status"));
                    assert!(request.contains("\r\nHost: local-tailscaled.sock\r\n"));
                    // Whoever asks may have gone: an answer that is too long is read in part.
                    let _ = stream.write_all(answer.as_bytes());
                    open.push(stream);
                }
            });
            fake
        }

        fn socket(&self) -> PathBuf {
            self.directory.path().join("tailscaled.sock")
        }
    }

    fn plain(body: &str) -> String {
        format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    }

    #[rstest]
    #[case::with_a_length(plain(r#"{"BackendState":"Running","Peer":null}"#))]
    #[case::chunked(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n\
         10\r\n{\"BackendState\":\r\nA;x=y\r\n\"Running\"}\r\n0\r\n\r\n".to_owned()
    )]
    fn a_running_daemon_is_recognised(#[case] answer: String) {
        let fake = Fake::answering(&answer);
        assert!(state(&fake.socket(), LONG).unwrap().is_running());
        check_running(&fake.socket(), LONG).unwrap();
    }

    #[rstest]
    #[case("NeedsLogin", "tailscale up")]
    #[case("NeedsMachineAuth", "Headscale")]
    #[case("Stopped", "tailscale up")]
    #[case("Starting", "wait")]
    #[case("NoState", "wait")]
    fn any_other_state_is_limited_connectivity_and_has_a_way_out(
        #[case] backend: &str,
        #[case] way_out: &str,
    ) {
        let fake = Fake::answering(&plain(&format!(r#"{{"BackendState":"{backend}"}}"#)));
        let error = check_running(&fake.socket(), LONG).unwrap_err();
        assert_eq!(error.code, 51);
        assert!(
            error.msg.contains(backend) && error.msg.contains(way_out),
            "{error}"
        );
    }

    #[rstest]
    #[case::refused("HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\n\r\nno!", "403 no!")]
    #[case::no_json("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nno!", "no!")]
    #[case::no_state("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "{}")]
    #[case::no_http("SSH-2.0-x\r\n\r\n", "not HTTP")]
    #[case::no_length("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "length")]
    #[case::no_chunk("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno\r\n", "chunk")]
    #[case::long_chunk(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n",
        "longer"
    )]
    #[case::endless_chunk(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        "timed out"
    )]
    #[case::half("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", "timed out")]
    #[case::silent("", "timed out")]
    fn an_answer_that_is_none_is_told(#[case] answer: &str, #[case] part: &str) {
        let fake = Fake::answering(answer);
        // Those that can be judged are, well before the deadline; the others wait for more.
        let deadline = if part == "timed out" { SHORT } else { LONG };
        let error = check_running(&fake.socket(), deadline).unwrap_err();
        assert_eq!(error.code, 51);
        assert!(error.msg.contains(part), "{error}");
        assert!(error.msg.contains("tailscaled.sock"), "{error}");
    }

    #[test]
    fn an_answer_without_end_is_not_read_to_its_end() {
        let header = "HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n";
        let fake = Fake::answering(&format!("{header}{}", " ".repeat(9_000_000)));
        let error = check_running(&fake.socket(), LONG).unwrap_err();
        assert!(error.msg.contains("cut off"), "{error}");
        let endless_line = Fake::answering(&"x".repeat(9_000_000));
        let error = check_running(&endless_line.socket(), LONG).unwrap_err();
        assert!(error.msg.contains("cut off"), "{error}");
    }

    #[test]
    fn nobody_there_is_told_with_the_key_to_set() {
        let error = check_running(Path::new("/nonexistent/ts.sock"), LONG).unwrap_err();
        assert_eq!(error.code, 51);
        for part in ["/nonexistent/ts.sock", "tailscale_socket", "No such file"] {
            assert!(error.msg.contains(part), "{error}");
        }
    }

    #[test]
    fn a_daemon_that_accepts_nothing_does_not_outlast_the_deadline() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("tailscaled.sock");
        let _never_accepts = UnixListener::bind(&socket).unwrap();
        let error = check_running(&socket, SHORT).unwrap_err();
        assert!(error.msg.contains("timed out"), "{error}");
    }
}
