//! Something small every 20 ms, to see for how long a way was interrupted.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, recv, sendto,
    socket_with,
};

use crate::frames::{Icmp, Icmpv6, Ipv4, Ipv6};
use crate::netns::Netns;
use crate::wait::eventually;

const BEAT: Duration = Duration::from_millis(20);

/// Every answer in a namespace is shown to all who ping from it: each knows its own by this.
static NEXT_ID: AtomicU16 = AtomicU16::new(1);

/// One that beats until dropped, and notes when an answer comes.
#[derive(Debug)]
pub struct Pulse {
    record: Shared,
    beating: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Record {
    last: Instant,
    longest: Duration,
    answers: u64,
    is_over: bool,
    broken: Option<ErrorKind>,
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
            Ok(socket)
        };
        let socket = from
            .enter(open)?
            .with_context(|| format!("open a socket to ping {to}"))?;
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let mut sequence = 0u16;
        Ok(Self::start(move |record| {
            sequence = sequence.wrapping_add(1);
            let request = echo_request(to, id, sequence);
            // A way that is not there now may come back.
            let _ = sendto(
                &socket,
                &request,
                SendFlags::empty(),
                &SocketAddr::new(to, 0),
            );
            let end = Instant::now() + BEAT;
            while Instant::now() < end {
                if is_answer(&socket, to, id).unwrap_or_default() {
                    record.note();
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
                    Ok(_) => record.note(),
                    Err(error) if is_late(&error) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        }))
    }

    fn start(mut beat: impl FnMut(&Shared) -> io::Result<()> + Send + 'static) -> Self {
        let record = Shared(Arc::new(Mutex::new(Record {
            last: Instant::now(),
            longest: Duration::ZERO,
            answers: 0,
            is_over: false,
            broken: None,
        })));
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

    /// How many answers came.
    pub fn answers(&self) -> u64 {
        self.record.with(|record| record.answers)
    }

    /// Why the connection is no more, if it is so.
    pub fn broken(&self) -> Option<ErrorKind> {
        self.record.with(|record| record.broken)
    }

    /// Forgets all gaps until now.
    pub fn reset(&self) {
        self.record
            .with(|record| (record.last, record.longest) = (Instant::now(), Duration::ZERO));
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

    fn note(&self) {
        self.with(|record| {
            record.longest = record.longest.max(record.last.elapsed());
            record.last = Instant::now();
            record.answers += 1;
        });
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

/// Whether the next message that comes within a beat is an answer to ours.
fn is_answer(socket: &OwnedFd, from: IpAddr, id: u16) -> Option<bool> {
    let mut buffer = [0; 256];
    let (length, _) = recv(socket, &mut buffer, RecvFlags::empty()).ok()?;
    let message = buffer.get(..length)?;
    let (message, reply) = match from {
        // With the head of its packet.
        IpAddr::V4(_) => (message.get(usize::from(message[0] & 0xf) * 4..)?, 0),
        IpAddr::V6(_) => (message, 129),
    };
    let is_ours = message.get(4..6)? == id.to_be_bytes();
    Some(is_ours && message.first() == Some(&reply))
}
