//! A ping or TCP byte every 20 ms, to measure outages and losses.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::net::sockopt::{Timeout, set_socket_recv_buffer_size_force, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, recv, sendto,
    socket_with,
};

use crate::frames::{Icmp, Icmpv6, Ipv4, Ipv6};
use crate::netns::Netns;
use crate::wait::eventually;

const INTERVAL: Duration = Duration::from_millis(20);
/// A gap of ten intervals is an outage.
const OUTAGE: Duration = Duration::from_millis(200);
/// Answers that the kernel drops here would be taken for lost ones.
const QUEUE_BYTES: usize = 4 << 20;

/// Every raw socket of a netns gets all answers. The ID identifies the stream.
static NEXT_ID: AtomicU16 = AtomicU16::new(1);

/// Runs until dropped.
#[derive(Debug)]
pub struct PingStream {
    record: Shared,
    thread: Option<JoinHandle<()>>,
}

/// A ping without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// Counted from 1.
    pub number: u64,
    /// Time from the start, or the last reset, until it was sent.
    pub after: Duration,
}

#[derive(Debug)]
struct Record {
    last: Instant,
    longest: Duration,
    /// Since `since`.
    outages: Vec<Duration>,
    answers: u64,
    /// Number of the last ping.
    sent: u64,
    /// Pings since `since` without an answer, by number, with the time they were sent.
    unanswered: BTreeMap<u64, Instant>,
    since: Instant,
    is_stopped: bool,
    broken: Option<ErrorKind>,
}

impl Record {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            last: now,
            longest: Duration::ZERO,
            outages: Vec::new(),
            answers: 0,
            sent: 0,
            unanswered: BTreeMap::new(),
            since: now,
            is_stopped: false,
            broken: None,
        }
    }

    fn reset(&mut self) {
        let now = Instant::now();
        (self.last, self.longest) = (now, Duration::ZERO);
        self.outages.clear();
        self.unanswered.clear();
        self.since = now;
    }

    /// Counts a ping and returns its sequence field.
    fn send(&mut self) -> u16 {
        self.sent += 1;
        self.unanswered.insert(self.sent, Instant::now());
        sequence(self.sent)
    }

    fn note(&mut self) {
        let gap = self.last.elapsed();
        self.longest = self.longest.max(gap);
        self.outages.extend(outage(gap));
        self.last = Instant::now();
        self.answers += 1;
    }

    /// The last ping with this sequence field is answered, if late.
    fn note_answer_to(&mut self, seq: u16) {
        self.note();
        let ago = sequence(self.sent).wrapping_sub(seq);
        if let Some(number) = self.sent.checked_sub(ago.into()) {
            self.unanswered.remove(&number);
        }
    }

    /// Includes one that lasts.
    fn outages(&self) -> Vec<Duration> {
        let current = outage(self.last.elapsed());
        self.outages.iter().copied().chain(current).collect()
    }

    fn lost(&self, until: u64) -> Vec<Lost> {
        let unanswered = self.unanswered.range(..=until);
        let lost = unanswered.map(|(number, sent)| Lost {
            number: *number,
            after: sent.saturating_duration_since(self.since),
        });
        lost.collect()
    }
}

fn outage(gap: Duration) -> Option<Duration> {
    (gap >= OUTAGE).then_some(gap)
}

/// The lower 16 bits.
fn sequence(number: u64) -> u16 {
    let [.., high, low] = number.to_be_bytes();
    u16::from_be_bytes([high, low])
}

impl PingStream {
    pub fn ping(from: &impl Netns, to: IpAddr) -> Result<Self> {
        let open = || -> io::Result<OwnedFd> {
            let (family, protocol) = match to {
                IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP),
                IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6),
            };
            let flags = SocketFlags::CLOEXEC;
            let socket = socket_with(family, SocketType::RAW, flags, Some(protocol))?;
            set_socket_timeout(&socket, Timeout::Recv, Some(INTERVAL))?;
            set_socket_recv_buffer_size_force(&socket, QUEUE_BYTES)?;
            Ok(socket)
        };
        let socket = from
            .enter(open)?
            .with_context(|| format!("open a raw socket to ping {to}"))?;
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Ok(Self::start(move |record| {
            let request = echo_request(to, id, record.with(Record::send));
            // A route may be missing for a while. A ping that cannot be sent counts as lost.
            let _ = sendto(
                &socket,
                &request,
                SendFlags::empty(),
                &SocketAddr::new(to, 0),
            );
            let end = Instant::now() + INTERVAL;
            while Instant::now() < end {
                if let Some(seq) = next_answer(&socket, to, id) {
                    record.with(|record| record.note_answer_to(seq));
                }
            }
            Ok(())
        }))
    }

    /// One connection to an [`EchoServer`](crate::EchoServer).
    pub fn tcp(from: &impl Netns, server: SocketAddr) -> Result<Self> {
        let connect = || TcpStream::connect_timeout(&server, Duration::from_secs(10));
        let mut stream = from
            .enter(connect)?
            .with_context(|| format!("connect to {server}"))?;
        stream.set_nodelay(true).context("set TCP_NODELAY")?;
        stream
            .set_read_timeout(Some(INTERVAL))
            .context("set a timeout")?;
        stream
            .set_write_timeout(Some(INTERVAL))
            .context("set a timeout")?;
        Ok(Self::start(move |record| {
            let end = Instant::now() + INTERVAL;
            let mut buffer = [0; 4096];
            match stream.write(b".") {
                Err(error) if !is_late(&error) => return Err(error),
                _ => {}
            }
            while Instant::now() < end {
                match stream.read(&mut buffer) {
                    Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                    Ok(_) => record.with(Record::note),
                    Err(error) if is_late(&error) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        }))
    }

    fn start(mut step: impl FnMut(&Shared) -> io::Result<()> + Send + 'static) -> Self {
        let record = Shared(Arc::new(Mutex::new(Record::new())));
        let shared = record.clone();
        let thread = thread::spawn(move || {
            while !shared.with(|record| record.is_stopped) {
                if let Err(error) = step(&shared) {
                    return shared.with(|record| record.broken = Some(error.kind()));
                }
            }
        });
        Self {
            record,
            thread: Some(thread),
        }
    }

    /// The longest time without an answer, including one that lasts.
    pub fn longest_gap(&self) -> Duration {
        self.record
            .with(|record| record.longest.max(record.last.elapsed()))
    }

    /// All gaps of at least 200 ms since the start or the last reset.
    pub fn outages(&self) -> Vec<Duration> {
        self.record.with(|record| record.outages())
    }

    pub fn answers(&self) -> u64 {
        self.record.with(|record| record.answers)
    }

    /// Pings without an answer since the start or the last reset. Waits up to `timeout` for late answers. A
    /// TCP connection loses nothing until it is [broken](Self::broken).
    pub fn lost(&self, timeout: Duration) -> Vec<Lost> {
        let until = self.record.with(|record| record.sent);
        let lost = || self.record.with(|record| record.lost(until));
        // The caller wants the rest.
        let _ = eventually(timeout, "all answers", || lost().is_empty().then_some(()));
        lost()
    }

    /// Why the connection broke, if it did.
    pub fn broken(&self) -> Option<ErrorKind> {
        self.record.with(|record| record.broken)
    }

    /// Forgets gaps and losses so far.
    pub fn reset(&self) {
        self.record.with(Record::reset);
    }

    pub fn await_answer(&self, deadline: Duration) -> Result<()> {
        let before = self.answers();
        eventually(deadline, "an answer", || {
            (self.answers() > before).then_some(())
        })
    }
}

impl Drop for PingStream {
    fn drop(&mut self) {
        self.record.with(|record| record.is_stopped = true);
        // The thread's socket holds the netns.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[derive(Debug, Clone)]
struct Shared(Arc<Mutex<Record>>);

impl Shared {
    fn with<T>(&self, access: impl FnOnce(&mut Record) -> T) -> T {
        access(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn is_late(error: &io::Error) -> bool {
    [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind())
}

fn echo_request(to: IpAddr, id: u16, sequence: u16) -> Vec<u8> {
    // The kernel adds the IP header and the ICMPv6 checksum.
    match to {
        IpAddr::V4(to) => {
            let message = Icmp::echo_request(id, sequence, b"ping");
            Ipv4::new(Ipv4Addr::UNSPECIFIED, to).icmp(message)[20..].to_vec()
        }
        IpAddr::V6(to) => {
            let message = Icmpv6::echo_request(id, sequence, b"ping");
            Ipv6::new(Ipv6Addr::UNSPECIFIED, to).icmp(message)[40..].to_vec()
        }
    }
}

/// The sequence field of the next message, if it answers one of our pings.
fn next_answer(socket: &OwnedFd, from: IpAddr, id: u16) -> Option<u16> {
    let mut buffer = [0; 256];
    let (length, _) = recv(socket, &mut buffer, RecvFlags::empty()).ok()?;
    let message = buffer.get(..length)?;
    let (message, reply) = match from {
        // A raw IPv4 socket returns the IP header as well.
        IpAddr::V4(_) => (message.get(usize::from(message[0] & 0xf) * 4..)?, 0),
        IpAddr::V6(_) => (message, 129),
    };
    let is_ours = message.get(4..6)? == id.to_be_bytes() && message.first() == Some(&reply);
    let seq = message.get(6..8)?.try_into().ok()?;
    is_ours.then_some(u16::from_be_bytes(seq))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(record: &Record) -> Vec<u64> {
        let lost = record.lost(record.sent).into_iter();
        lost.map(|one| one.number).collect()
    }

    #[test]
    fn a_ping_without_an_answer_is_lost_and_a_late_answer_counts() {
        let mut record = Record::new();
        let carried: Vec<u16> = (0..4).map(|_| record.send()).collect();
        assert_eq!(carried, [1, 2, 3, 4]);
        for answered in [1, 4] {
            record.note_answer_to(answered);
        }
        assert_eq!(lost(&record), [2, 3]);
        assert_eq!(record.lost(2).len(), 1);
        record.note_answer_to(2);
        // A duplicate answer and one to a ping that was never sent change nothing.
        record.note_answer_to(2);
        record.note_answer_to(9);
        assert_eq!(lost(&record), [3]);
        record.reset();
        record.note_answer_to(3);
        assert!(lost(&record).is_empty());
        record.send();
        assert_eq!(lost(&record), [5]);
    }

    #[test]
    fn outages_are_listed_and_short_gaps_are_none() {
        let mut record = Record::new();
        let mut answer_after = |millis: u64| {
            record.last = Instant::now()
                .checked_sub(Duration::from_millis(millis))
                .unwrap();
            record.note();
        };
        [2000, 20, 40, 5000, 20]
            .into_iter()
            .for_each(&mut answer_after);
        let seconds = |record: &Record| -> Vec<u64> {
            record.outages().iter().map(Duration::as_secs).collect()
        };
        assert_eq!(seconds(&record), [2, 5]);
        record.last = Instant::now().checked_sub(Duration::from_secs(3)).unwrap();
        assert_eq!(seconds(&record), [2, 5, 3]);
        record.reset();
        assert!(record.outages().is_empty());
    }

    #[test]
    fn numbers_continue_when_the_sequence_field_wraps() {
        let mut record = Record::new();
        for _ in 0..0x1_0003 {
            let carried = record.send();
            if ![0xffff, 0, 2].contains(&carried) {
                record.note_answer_to(carried);
            }
        }
        assert_eq!(lost(&record), [2, 0xffff, 0x1_0000, 0x1_0002]);
        record.note_answer_to(0xffff);
        record.note_answer_to(2);
        assert_eq!(lost(&record), [2, 0x1_0000]);
    }
}
