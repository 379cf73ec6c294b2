//! Something small every 20 ms, to see for how long a way was interrupted, and what was lost on it.

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

const BEAT: Duration = Duration::from_millis(20);
/// No answer for as long as ten beats take: it is quiet.
const QUIET: Duration = Duration::from_millis(200);
/// Room for all answers that come while the beating thread does not get to run: what the kernel drops
/// here was not lost on its way.
const QUEUE_BYTES: usize = 4 << 20;

/// Every answer in a namespace is shown to all who ping from it: each knows its own by this.
static NEXT_ID: AtomicU16 = AtomicU16::new(1);

/// One that beats until dropped, and notes when an answer comes.
#[derive(Debug)]
pub struct Pulse {
    record: Shared,
    beating: Option<JoinHandle<()>>,
}

/// A ping that nobody answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// Its place among the pings of its pulse, from 1.
    pub number: u64,
    /// When it was sent, from the pulse's start or last reset.
    pub after: Duration,
}

#[derive(Debug)]
struct Record {
    last: Instant,
    longest: Duration,
    /// Those since `since` that were worth to be noted.
    silences: Vec<Duration>,
    answers: u64,
    /// The number of the last ping.
    sent: u64,
    /// Pings since `since` without an answer so far, by their numbers: when they were sent.
    unanswered: BTreeMap<u64, Instant>,
    since: Instant,
    is_over: bool,
    broken: Option<ErrorKind>,
}

impl Record {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            last: now,
            longest: Duration::ZERO,
            silences: Vec::new(),
            answers: 0,
            sent: 0,
            unanswered: BTreeMap::new(),
            since: now,
            is_over: false,
            broken: None,
        }
    }

    fn reset(&mut self) {
        let now = Instant::now();
        (self.last, self.longest) = (now, Duration::ZERO);
        self.silences.clear();
        self.unanswered.clear();
        self.since = now;
    }

    /// Counts a ping that is sent now; what it carries in its field of 16 bits.
    fn send(&mut self) -> u16 {
        self.sent += 1;
        self.unanswered.insert(self.sent, Instant::now());
        sequence(self.sent)
    }

    fn note(&mut self) {
        let gap = self.last.elapsed();
        self.longest = self.longest.max(gap);
        self.silences.extend(worth_noting(gap));
        self.last = Instant::now();
        self.answers += 1;
    }

    /// Notes an answer, however late: it is to the last ping that carried this.
    fn note_answer_to(&mut self, carried: u16) {
        self.note();
        let ago = sequence(self.sent).wrapping_sub(carried);
        if let Some(number) = self.sent.checked_sub(ago.into()) {
            self.unanswered.remove(&number);
        }
    }

    /// One that lasts counts.
    fn silences(&self) -> Vec<Duration> {
        let now = worth_noting(self.last.elapsed());
        self.silences.iter().copied().chain(now).collect()
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

fn worth_noting(gap: Duration) -> Option<Duration> {
    (gap >= QUIET).then_some(gap)
}

/// The last 16 bits of a number.
fn sequence(number: u64) -> u16 {
    let [.., high, low] = number.to_be_bytes();
    u16::from_be_bytes([high, low])
}

impl Pulse {
    /// Pings an address.
    pub fn ping(from: &impl Netns, to: IpAddr) -> Result<Self> {
        let open = || -> io::Result<OwnedFd> {
            let (family, protocol) = match to {
                IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP),
                IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6),
            };
            let flags = SocketFlags::CLOEXEC;
            let socket = socket_with(family, SocketType::RAW, flags, Some(protocol))?;
            set_socket_timeout(&socket, Timeout::Recv, Some(BEAT))?;
            set_socket_recv_buffer_size_force(&socket, QUEUE_BYTES)?;
            Ok(socket)
        };
        let socket = from
            .enter(open)?
            .with_context(|| format!("open a socket to ping {to}"))?;
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Ok(Self::start(move |record| {
            let request = echo_request(to, id, record.with(Record::send));
            // A way that is not there now may come back. What is refused here has no answer either.
            let _ = sendto(
                &socket,
                &request,
                SendFlags::empty(),
                &SocketAddr::new(to, 0),
            );
            let end = Instant::now() + BEAT;
            while Instant::now() < end {
                if let Some(carried) = next_answer(&socket, to, id) {
                    record.with(|record| record.note_answer_to(carried));
                }
            }
            Ok(())
        }))
    }

    /// Talks to an [`EchoServer`](crate::EchoServer) over one connection, which must not break.
    pub fn tcp(from: &impl Netns, server: SocketAddr) -> Result<Self> {
        let connect = || TcpStream::connect_timeout(&server, Duration::from_secs(10));
        let mut stream = from
            .enter(connect)?
            .with_context(|| format!("connect to {server}"))?;
        stream.set_nodelay(true).context("send at once")?;
        stream
            .set_read_timeout(Some(BEAT))
            .context("set a time limit")?;
        stream
            .set_write_timeout(Some(BEAT))
            .context("set a time limit")?;
        Ok(Self::start(move |record| {
            let end = Instant::now() + BEAT;
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

    fn start(mut beat: impl FnMut(&Shared) -> io::Result<()> + Send + 'static) -> Self {
        let record = Shared(Arc::new(Mutex::new(Record::new())));
        let ours = record.clone();
        let beating = thread::spawn(move || {
            while !ours.with(|record| record.is_over) {
                if let Err(error) = beat(&ours) {
                    return ours.with(|record| record.broken = Some(error.kind()));
                }
            }
        });
        Self {
            record,
            beating: Some(beating),
        }
    }

    /// The longest time without an answer, from the start until now: silence that lasts counts.
    pub fn longest_gap(&self) -> Duration {
        self.record
            .with(|record| record.longest.max(record.last.elapsed()))
    }

    /// Every time without an answer from the start, or the last reset, until now, one after the other, if
    /// it was longer than some beats: a way can be interrupted more than once.
    pub fn silences(&self) -> Vec<Duration> {
        self.record.with(|record| record.silences())
    }

    /// How many answers came.
    pub fn answers(&self) -> u64 {
        self.record.with(|record| record.answers)
    }

    /// The pings from the start, or the last reset, until now that have no answer. Late ones have one:
    /// it is waited for, but no longer than `patience`. Of a connection nothing is lost as long as it
    /// is not [broken](Self::broken).
    pub fn lost(&self, patience: Duration) -> Vec<Lost> {
        let until = self.record.with(|record| record.sent);
        let lost = || self.record.with(|record| record.lost(until));
        // What has not come by then is what is asked for.
        let _ = eventually(patience, "all answers", || lost().is_empty().then_some(()));
        lost()
    }

    /// Why the connection is no more, if it is so.
    pub fn broken(&self) -> Option<ErrorKind> {
        self.record.with(|record| record.broken)
    }

    /// Forgets all gaps and losses until now.
    pub fn reset(&self) {
        self.record.with(Record::reset);
    }

    /// Waits for the next answer.
    pub fn await_answer(&self, deadline: Duration) -> Result<()> {
        let before = self.answers();
        eventually(deadline, "an answer", || {
            (self.answers() > before).then_some(())
        })
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.record.with(|record| record.is_over = true);
        // Its socket holds the namespace: it is closed when this returns.
        let _ = self.beating.take().map(JoinHandle::join);
    }
}

/// A record that the beating thread writes.
#[derive(Debug, Clone)]
struct Shared(Arc<Mutex<Record>>);

impl Shared {
    fn with<T>(&self, look: impl FnOnce(&mut Record) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn is_late(error: &io::Error) -> bool {
    [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind())
}

fn echo_request(to: IpAddr, id: u16, sequence: u16) -> Vec<u8> {
    // The kernel makes the head, and of IPv6 the checksum, which needs the source.
    match to {
        IpAddr::V4(to) => {
            let message = Icmp::echo_request(id, sequence, b"pulse");
            Ipv4::new(Ipv4Addr::UNSPECIFIED, to).icmp(message)[20..].to_vec()
        }
        IpAddr::V6(to) => {
            let message = Icmpv6::echo_request(id, sequence, b"pulse");
            Ipv6::new(Ipv6Addr::UNSPECIFIED, to).icmp(message)[40..].to_vec()
        }
    }
}

/// What the next message carries that comes within a beat, if it is an answer to one of ours.
fn next_answer(socket: &OwnedFd, from: IpAddr, id: u16) -> Option<u16> {
    let mut buffer = [0; 256];
    let (length, _) = recv(socket, &mut buffer, RecvFlags::empty()).ok()?;
    let message = buffer.get(..length)?;
    let (message, reply) = match from {
        // With the head of its packet.
        IpAddr::V4(_) => (message.get(usize::from(message[0] & 0xf) * 4..)?, 0),
        IpAddr::V6(_) => (message, 129),
    };
    let is_ours = message.get(4..6)? == id.to_be_bytes() && message.first() == Some(&reply);
    let carried = message.get(6..8)?.try_into().ok()?;
    is_ours.then_some(u16::from_be_bytes(carried))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(record: &Record) -> Vec<u64> {
        let lost = record.lost(record.sent).into_iter();
        lost.map(|one| one.number).collect()
    }

    #[test]
    fn what_has_no_answer_is_lost_and_late_answers_are_answers() {
        let mut record = Record::new();
        let carried: Vec<u16> = (0..4).map(|_| record.send()).collect();
        assert_eq!(carried, [1, 2, 3, 4]);
        for answered in [1, 4] {
            record.note_answer_to(answered);
        }
        assert_eq!(lost(&record), [2, 3]);
        // Of those that are asked for, and no later ones.
        assert_eq!(record.lost(2).len(), 1);
        record.note_answer_to(2);
        // Twice is no more than once, and what was never sent was never lost.
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
    fn silences_are_told_one_by_one_and_moments_are_none() {
        let mut record = Record::new();
        let mut hear_after = |millis: u64| {
            record.last = Instant::now()
                .checked_sub(Duration::from_millis(millis))
                .unwrap();
            record.note();
        };
        [2000, 20, 40, 5000, 20]
            .into_iter()
            .for_each(&mut hear_after);
        let seconds = |record: &Record| -> Vec<u64> {
            record.silences().iter().map(Duration::as_secs).collect()
        };
        assert_eq!(seconds(&record), [2, 5]);
        record.last = Instant::now().checked_sub(Duration::from_secs(3)).unwrap();
        assert_eq!(seconds(&record), [2, 5, 3]);
        record.reset();
        assert!(record.silences().is_empty());
    }

    #[test]
    fn numbers_go_on_where_sixteen_bits_begin_again() {
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
